"""Many candidates, one winner by luck: Holm's correction."""

from __future__ import annotations

from collections.abc import Mapping


def holm(p_values: Mapping[str, float], alpha: float = 0.05) -> dict[str, bool]:
    """Name -> is it significant, with at most `alpha` chance of any error among all.

    Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6 (1979).
    """
    significant: dict[str, bool] = {}
    still = True
    for rank, (name, p_value) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        still = still and p_value <= alpha / (len(p_values) - rank)
        significant[name] = still
    return significant

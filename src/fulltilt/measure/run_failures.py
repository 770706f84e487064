"""What needs no statistics: a run that fails, ends early or loses its loss under the recipe, and not without it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from fulltilt.records.long_run import RunRecord
from fulltilt.records.words import Outcome

Pair = tuple[RunRecord, RunRecord]
"""The command as it is, and under the recipe, with the same seed."""

GOOD_ENDS = (Outcome.FINISHED, Outcome.ENDED)


def failures(pairs: Sequence[Pair]) -> tuple[str, ...]:
    """A sentence for each run under the recipe that goes wrong, all runs without it being right."""
    lengths = {run.curve.num_steps for run, _ in pairs if run.curve is not None}
    statuses = {run.exit_status or 0 for run, _ in pairs}
    return tuple(
        f"under the recipe the run with seed {b.seed} {what}"
        for a, b in pairs
        for what in _what_went_wrong(a, b, lengths=lengths, statuses=statuses)
    )


def _what_went_wrong(a: RunRecord, b: RunRecord, *, lengths: set[int], statuses: set[int]) -> Iterator[str]:
    if b.outcome not in GOOD_ENDS or a.curve is None or b.curve is None:
        yield f"fails ({b.outcome.value.replace('_', ' ')}): {b.message or 'it left no record'}"
        return
    if len(lengths) == 1 and b.curve.num_steps not in lengths:
        yield f"ends after {b.curve.num_steps} steps, without it after {a.curve.num_steps}"
    elif len(statuses) == 1 and (b.exit_status or 0) not in statuses:
        yield f"ends with exit status {b.exit_status or 0}, without it with {a.exit_status or 0}"
    for name, losses in a.curve.losses.items():
        yield from _of_curve(losses, b.curve.losses.get(name, ()), b.curve.stride, f"of {name} " if name else "")


def _of_curve(a: Sequence[float], b: Sequence[float], stride: int, whose: str) -> Iterator[str]:
    if a and not b:
        yield f"has no loss {whose}at all"
        return
    lost = next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if math.isfinite(x) and not math.isfinite(y)), None
    )
    if lost is not None:
        yield f"has a loss {whose}of {b[lost]} from step {lost * stride + 1} on, without it {a[lost]:.5g} there"
    elif _diverges(b) and not _diverges(a):
        first, last = _ends(b)
        yield f"diverges: its loss {whose}begins at {first:.5g} and ends at {last:.5g}, without it at {_ends(a)[1]:.5g}"


def _diverges(losses: Sequence[float]) -> bool:
    """Does it end far above where it began?"""
    if len(losses) < 10 or not all(map(math.isfinite, losses)):
        return False
    first, last = _ends(losses)
    return last - first > max(abs(first), _range(losses[: len(losses) // 10 + 1]))


def _ends(losses: Sequence[float]) -> tuple[float, float]:
    """Means of the first and the last tenth."""
    tenth = max(1, len(losses) // 10)
    return statistics.fmean(losses[:tenth]), statistics.fmean(losses[-tenth:])


def _range(losses: Sequence[float]) -> float:
    return max(losses) - min(losses)

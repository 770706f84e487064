"""Comparisons of a journal, put into the order and the words of a report."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fulltilt.records.journal import ComparisonRecord
from fulltilt.records.request import TechniqueChoice
from fulltilt.report.words import count_words, interval_words, recipe_words

_ORDER = ("confirm", "aa")
"""Purposes that are read first; the others follow as they were made."""


def in_reading_order(comparisons: Sequence[ComparisonRecord]) -> list[ComparisonRecord]:
    """Those with blocks to show: the confirmation first, then the command against itself, then the others."""
    shown = [comparison for comparison in comparisons if any(pair.blocks for pair in comparison.pairs)]
    return sorted(shown, key=lambda comparison: _rank(purpose(comparison)))


def purpose(comparison: ComparisonRecord) -> str:
    """What was asked, from the comparison's key: "aa", "climb", "ablate", "confirm"; empty when not told."""
    try:
        parts = json.loads(comparison.key)
    except ValueError:
        return ""
    return parts[0] if isinstance(parts, list) and parts and isinstance(parts[0], str) else ""


def title(comparison: ComparisonRecord) -> str:
    """ "B against A" in as few words as tell it."""
    a, b = comparison.a, comparison.b
    if a == b:
        return f"{recipe_words(a)}, against itself"
    if not a:
        return f"{recipe_words(b)}, against the command as it is"
    added, removed = _without(b, a), _without(a, b)
    if added and not removed:
        return f"{recipe_words(added)}, on top of {recipe_words(a)}"
    if removed and not added:
        return f"the recipe without {recipe_words(removed)}"
    return f"{recipe_words(b)}, against {recipe_words(a)}"


def outcome(comparison: ComparisonRecord, floor: float) -> str:
    """The interval and what it rests on, or why there is none."""
    if comparison.no_effect:
        return f"no effect: {comparison.no_effect}"
    speedup = comparison.speedup
    if comparison.failure or speedup is None:
        return f"failed: {comparison.failure}" if comparison.failure else "not measured"
    busy = f", {count_words(speedup.num_busy_blocks, 'busy one')} left out" if speedup.num_busy_blocks else ""
    basis = f"{count_words(speedup.num_blocks, 'block')} in {count_words(speedup.num_pairs, 'pair')}{busy}"
    return f"{interval_words(speedup, floor)}; {basis}"


def _rank(name: str) -> int:
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)


def _without(these: Sequence[TechniqueChoice], those: Sequence[TechniqueChoice]) -> list[TechniqueChoice]:
    return [choice for choice in these if choice not in those]

"""How many steps at the start are not like the rest: detected from their times, not assumed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

_SETTLED_STEPS = 3
"""This many steps in a row at the steady level end the warm-up."""
_DEVIATIONS = 4.0
_MIN_RELATIVE_SPREAD = 0.03


def warmup_steps(step_seconds: Sequence[float]) -> int:
    """The number of leading steps that are slower than steady ones; at most half of all.

    Steady is the median of the second half, and what lies within four (robust) standard deviations above it. Warm-up
    ends with the first three steps in a row that are steady, so that single slow steps later (an evaluation, the first
    step of a burst) are not taken for it.
    """
    if len(step_seconds) < 2 * _SETTLED_STEPS:
        return 0
    limit = _steady_limit(step_seconds[len(step_seconds) // 2 :])
    half = len(step_seconds) // 2
    for first in range(half):
        if all(seconds <= limit for seconds in step_seconds[first : first + _SETTLED_STEPS]):
            return first
    return half


def warmup_excess_seconds(step_seconds: Sequence[float], num_warmup: int) -> float:
    """What the first `num_warmup` steps cost beyond as many steady ones, in seconds."""
    rest = step_seconds[num_warmup:]
    if not num_warmup or not rest:
        return 0.0
    steady = statistics.median(rest)
    return max(0.0, sum(step_seconds[:num_warmup]) - num_warmup * steady)


def _steady_limit(steady: Sequence[float]) -> float:
    middle = statistics.median(steady)
    spread = 1.4826 * statistics.median(abs(seconds - middle) for seconds in steady)
    return middle + _DEVIATIONS * max(spread, _MIN_RELATIVE_SPREAD * middle)

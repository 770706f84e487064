"""Are the means of paired runs equivalent? Two one-sided t tests on the differences, against a margin.

Schuirmann, A comparison of the two one-sided tests procedure and the power approach for assessing the equivalence of
average bioavailability, J. Pharmacokinetics and Biopharmaceutics 15 (1987); Lakens, Equivalence tests: a practical
primer, Social Psychological and Personality Science 8 (2017). docs/verify.md says why the margin is what it is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import cache

from scipy import stats

from fulltilt.records.long_run import Equivalence

ALPHA = 0.05
"""Chance of calling a difference as large as the margin equivalent. Both tests pass exactly when the interval of
1 - 2 alpha lies within the margin."""

LEAST_MARGIN = 0.01
"""Of the loss. Nobody reads a loss more finely, and where seeds agree to the last bit their spread allows nothing."""

REPRODUCIBILITY_LIMIT = 2.77
"""1.96 sqrt(2): two single runs that differ in their seed only are within so many of their standard deviations in 95 %
of cases (the reproducibility limit of ISO 5725-1). A recipe that moves the mean by less does what another seed does."""

LEAST_PAIRS = 2
_MOST_PAIRS_ADVISED = 64


def compare_means(
    a: Sequence[float],
    b: Sequence[float],
    *,
    scale: float,
    margin_relative: float | None = None,
    resolution: float = 0.0,
) -> Equivalence:
    """What B's mean has more than A's, paired: a[k] and b[k] are runs with the same seed.

    Args:
        scale: what relative margins are relative to, such as the mean of |loss|.
        margin_relative: the margin over `scale`; by default `natural_margin` decides.
        resolution: one unit of the last digit that was printed of these values; 0 for full precision.

    Raises:
        ValueError: fewer than two pairs, or values that are not finite.
    """
    if len(a) != len(b) or len(a) < LEAST_PAIRS:
        raise ValueError(f"{len(a)} and {len(b)} runs cannot be compared; it takes {LEAST_PAIRS} pairs at least")
    if not all(math.isfinite(value) for value in (*a, *b)):
        raise ValueError("values that are not finite have no mean to compare")
    differences = [theirs - ours for ours, theirs in zip(a, b, strict=True)]
    difference = statistics.fmean(differences)
    deviation = max(_deviation(differences, scale), resolution / math.sqrt(6))  # two values, each rounded
    spread = _deviation(a, scale)
    wanted = margin_relative * scale if margin_relative is not None else natural_margin(spread, len(a), scale)
    margin = max(wanted, resolution)
    half = _half_width(deviation, len(a))
    return Equivalence(
        num_pairs=len(a),
        mean_a=statistics.fmean(a),
        mean_b=statistics.fmean(b),
        difference=difference,
        low=difference - half,
        high=difference + half,
        confidence=1 - 2 * ALPHA,
        margin=margin,
        spread=spread,
        p_difference=_p_value(difference, deviation, len(a)),
        power=_power(margin, deviation, len(a)),
        num_pairs_needed=_pairs_needed(difference, deviation, margin),
    )


def natural_margin(spread: float, num_runs: int, scale: float) -> float:
    """The default margin: what another seed does, by a lower bound of it, and at least one percent.

    The spread of few runs is a rough estimate, and a margin that happens to be too wide would pass real differences: so
    its lower confidence bound counts, sqrt(v / chi2_quantile(1 - alpha, v)) of it with v = num_runs - 1.
    """
    degrees = num_runs - 1
    lower = spread * math.sqrt(degrees / float(stats.chi2.ppf(1 - ALPHA, degrees)))
    return max(LEAST_MARGIN * scale, REPRODUCIBILITY_LIMIT * lower)


def is_equivalent(equivalence: Equivalence) -> bool:
    """Is the whole interval within the margin?"""
    if equivalence.low == equivalence.high == 0.0:
        return True  # every run is the same: a margin of nothing is kept too
    return -equivalence.margin < equivalence.low and equivalence.high < equivalence.margin


def _deviation(values: Sequence[float], scale: float) -> float:
    """Standard deviation; what float64 sums differ by is none."""
    deviation = statistics.stdev(values)
    return deviation if deviation > 1e-13 * scale else 0.0


def _half_width(deviation: float, num_pairs: int) -> float:
    return _quantile(num_pairs - 1) * deviation / math.sqrt(num_pairs)


@cache
def _quantile(degrees: int) -> float:
    """Of Student's t, one-sided; cached, as simulations ask for it often."""
    return float(stats.t.ppf(1 - ALPHA, degrees))


def _p_value(difference: float, deviation: float, num_pairs: int) -> float:
    if deviation == 0:
        return 1.0 if difference == 0 else 0.0
    return float(2 * stats.t.sf(abs(difference) * math.sqrt(num_pairs) / deviation, num_pairs - 1))


def _power(margin: float, deviation: float, num_pairs: int) -> float:
    """Of both tests at a true difference of 0, with the observed deviation taken for the true one."""
    if deviation == 0:
        return 1.0
    degrees = num_pairs - 1
    reach = margin * math.sqrt(num_pairs) / deviation - _quantile(degrees)
    return max(0.0, 2 * float(stats.t.cdf(reach, degrees)) - 1)


def _pairs_needed(difference: float, deviation: float, margin: float) -> int | None:
    """The fewest pairs whose interval would lie within the margin, or leave zero out."""
    room = max(margin - abs(difference), abs(difference))
    for num_pairs in range(LEAST_PAIRS, _MOST_PAIRS_ADVISED + 1):
        if _half_width(deviation, num_pairs) < room:
            return num_pairs
    return None

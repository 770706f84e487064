"""The interval of a speed-up from pairs of processes: blocks within a pair, restarts between pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import stats

from fulltilt.measure.pair import PairEstimate, estimate_pair
from fulltilt.records.journal import PairRecord, SpeedupInterval

DEFAULT_RESTART_SD = 0.025
"""Prior standard deviation of the log ratio of two identical processes over their whole life. Seen on shared machines:
-0.8, +2.8, +2.0 and +3.5 % in pairs of 40 blocks of 10 steps (root mean square 2.5 %), in CPU time as well."""

PRIOR_DEGREES_OF_FREEDOM = 4.0
"""How many pairs the prior counts for."""


def compare_pairs(
    pairs: Sequence[PairRecord],
    *,
    confidence: float = 0.95,
    restart_sd: float = DEFAULT_RESTART_SD,
    extra_pair_log_ratios: Sequence[float] = (),
) -> SpeedupInterval:
    """How many times faster B is than A (time of A over time of B), with an interval.

    With c_i and s_i the centre and standard error of pair i of R (see `pair.estimate_pair`), e_j the log ratios of A/A
    pairs of the same tune, and the prior of v0 degrees of freedom and standard deviation t0:

        variance of a restart   t^2 = (v0 t0^2 + sum (c_i - mean c)^2 + sum e_j^2) / v,   v = v0 + R - 1 + number of e_j
        standard error          s^2 = t^2 / R + sum s_i^2 / R^2
        interval                exp(mean c +- t_quantile(v) s)

    This is the posterior of a normal mean whose variance has a scaled inverse chi-squared prior (Gelman et al.,
    Bayesian Data Analysis, section 2.6), with the within-pair errors added. The spread of the c_i holds block noise
    too, which is thus counted twice: the interval errs on the wide side.

    Args:
        extra_pair_log_ratios: of pairs of identical processes, as seen in the same tune.

    Raises:
        ValueError: no pair with a block.
    """
    estimates = [estimate_pair(pair.blocks) for pair in pairs if pair.blocks]
    if not estimates:
        raise ValueError("no pair of processes has a block to compare")
    centers = [estimate.center for estimate in estimates]
    mean = math.fsum(centers) / len(centers)
    squares = math.fsum((center - mean) ** 2 for center in centers)
    squares += math.fsum(ratio**2 for ratio in extra_pair_log_ratios)
    degrees = PRIOR_DEGREES_OF_FREEDOM + len(centers) - 1 + len(extra_pair_log_ratios)
    restart_variance = (PRIOR_DEGREES_OF_FREEDOM * restart_sd**2 + squares) / degrees
    error = _standard_error(restart_variance, estimates)
    half = float(stats.t.ppf(0.5 + confidence / 2, degrees)) * error
    return SpeedupInterval(
        median=math.exp(mean),
        low=math.exp(mean - half),
        high=math.exp(mean + half),
        confidence=confidence,
        num_pairs=len(estimates),
        num_blocks=sum(estimate.num_blocks for estimate in estimates),
        num_busy_blocks=sum(estimate.num_left_out for estimate in estimates),
        p_value=float(2 * stats.t.sf(abs(mean) / error, degrees)),
    )


def _standard_error(restart_variance: float, estimates: Sequence[PairEstimate]) -> float:
    count = len(estimates)
    within = math.fsum(estimate.standard_error**2 for estimate in estimates)
    return math.sqrt(restart_variance / count + within / count**2)

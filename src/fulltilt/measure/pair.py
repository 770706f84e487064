"""One pair of processes: the centre of its blocks' log ratios, and how well it is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray
from scipy import stats

from fulltilt.measure.noise import usable_blocks
from fulltilt.records.journal import PairedBlock

_RESAMPLES = 400
_SEED = 20_260_101
_MIN_STANDARD_ERROR = 0.002
_ERROR_OF_ONE_BLOCK = 0.10
"""Standard deviation of the log ratio of a single pair of blocks, as seen on shared machines (7 to 10 %)."""


@dataclass(frozen=True, slots=True)
class PairEstimate:
    """log(time of A / time of B) within one pair of processes."""

    center: float
    standard_error: float
    num_blocks: int
    num_left_out: int


def estimate_pair(blocks: Sequence[PairedBlock]) -> PairEstimate:
    """Median of the usable blocks' log ratios, with a standard error that is honest about few, drifting blocks.

    The error is that of a moving-block bootstrap (Kuensch 1989; chunks of about n^(1/3) neighbors keep drift and
    autocorrelation), not below what independent normal blocks would give, and inflated by t(n - 1) / z for few blocks.
    """
    used, _ = usable_blocks(blocks)
    ratios = numpy.array([numpy.log(block.a.seconds_per_step / block.b.seconds_per_step) for block in used])
    return PairEstimate(
        center=float(numpy.median(ratios)),
        standard_error=_standard_error(ratios),
        num_blocks=len(used),
        num_left_out=len(blocks) - len(used),
    )


def _standard_error(ratios: NDArray[numpy.float64]) -> float:
    n = len(ratios)
    if n < 3:
        return _ERROR_OF_ONE_BLOCK / math.sqrt(n)
    inflation = float(stats.t.ppf(0.975, n - 1) / stats.norm.ppf(0.975))
    return float(inflation * max(_bootstrap_error(ratios), _independent_error(ratios), _MIN_STANDARD_ERROR))


def _independent_error(ratios: NDArray[numpy.float64]) -> float:
    """Of the median of n independent normal values with this (robust) spread."""
    spread = float(stats.median_abs_deviation(ratios, scale="normal"))
    return float(numpy.sqrt(numpy.pi / 2) * spread / numpy.sqrt(len(ratios)))


def _bootstrap_error(ratios: NDArray[numpy.float64]) -> float:
    n = len(ratios)
    length = max(1, round(n ** (1 / 3)))
    chunks = numpy.lib.stride_tricks.sliding_window_view(ratios, length)
    num_drawn = -(-n // length)

    def median_of_chunks(indices: NDArray[numpy.int64], axis: int = -1) -> NDArray[numpy.float64]:
        drawn = chunks[indices[..., :num_drawn]]
        return numpy.asarray(numpy.median(drawn.reshape(*drawn.shape[:-2], -1), axis=-1))

    result = stats.bootstrap(
        (numpy.arange(len(chunks)),),
        median_of_chunks,
        n_resamples=_RESAMPLES,
        vectorized=True,
        method="percentile",
        rng=numpy.random.default_rng(_SEED),
    )
    return float(result.standard_error)

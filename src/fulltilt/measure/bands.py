"""Loss curves of several runs as bands: for each bin of steps the lowest, the mean and the highest of the runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from fulltilt.measure.run_failures import Pair
from fulltilt.measure.thinning import bin_means
from fulltilt.records.long_run import CurveBand, RunRecord

_MOST_BINS = 160


def bands_of(pairs: Sequence[Pair]) -> tuple[CurveBand, ...]:
    """A band of A and one of B for each loss curve; each side as long as its longest run."""
    names = list(dict.fromkeys(name for a, _ in pairs if a.curve is not None for name in a.curve.losses))
    return tuple(_band(name, pairs) for name in names)


def _band(name: str, pairs: Sequence[Pair]) -> CurveBand:
    a = [_curve(run, name) for run, _ in pairs]
    b = [_curve(run, name) for _, run in pairs]
    length = max(map(len, (*a, *b)))
    size = max(1, math.ceil(length / _MOST_BINS))
    stride = next((run.curve.stride for run, _ in pairs if run.curve is not None), 1)
    ends = range(size, length + size, size)
    return CurveBand(
        name=name,
        bin_steps=tuple(min(end, length) * stride for end in ends),
        a=_side(a, size),
        b=_side(b, size),
    )


def _curve(run: RunRecord, name: str) -> tuple[float, ...]:
    return run.curve.losses.get(name, ()) if run.curve is not None else ()


def _side(curves: Sequence[Sequence[float]], size: int) -> tuple[tuple[float, float, float], ...]:
    binned = [bin_means(curve, size) for curve in curves]
    points = []
    for index in range(max(map(len, binned), default=0)):
        values = [curve[index] for curve in binned if index < len(curve)]
        points.append((min(values), statistics.fmean(values), max(values)))
    return tuple(points)

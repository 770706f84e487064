"""Long curves made short, for the journal and for charts: means of neighbours."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

from fulltilt.records.curve import CurveRecord

MOST_POINTS = 4000
"""Of a loss curve in the journal."""


def thinned(curve: CurveRecord, most: int = MOST_POINTS) -> CurveRecord:
    """`curve` with at most so many points a loss curve; a value that is not finite stays one."""
    longest = max(map(len, curve.losses.values()), default=0)
    stride = max(1, math.ceil(longest / most))
    if stride == 1:
        return curve
    losses = {name: tuple(bin_means(values, stride)) for name, values in curve.losses.items()}
    return dataclasses.replace(curve, losses=losses, stride=curve.stride * stride)


def bin_means(values: Sequence[float], size: int) -> list[float]:
    """The mean of each `size` neighbours; the last bin may have fewer."""
    return [statistics.fmean(values[start : start + size]) for start in range(0, len(values), size)]

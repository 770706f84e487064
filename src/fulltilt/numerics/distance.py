"""Distances between tensors that only left their sketches. Parent side: no torch.

Estimates of one norm are off by about 9 % (64 buckets), but by the same hash for all tensors of one parameter: ratios
of distances are better than each of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from fulltilt.records.record import TensorSketch


def is_finite(sketch: TensorSketch) -> bool:
    """Had the tensor neither nan nor infinities?"""
    return math.isfinite(sketch.norm) and all(map(math.isfinite, sketch.projection))


def difference(a: TensorSketch, b: TensorSketch) -> TensorSketch:
    """The sketch of a - b; its norm is an estimate. Sketches of unlike tensors are infinitely far apart."""
    if a.numel != b.numel or len(a.projection) != len(b.projection):
        return TensorSketch(norm=math.inf, projection=(), numel=a.numel)
    projection = tuple(left - right for left, right in zip(a.projection, b.projection, strict=True))
    return TensorSketch(norm=root_sum_square(projection), projection=projection, numel=a.numel)


def change(start: TensorSketch, end: TensorSketch) -> TensorSketch:
    """The sketch of what happened to a tensor: end - start."""
    return difference(end, start)


def distance(a: TensorSketch, b: TensorSketch) -> float:
    """Estimated Euclidean norm of a - b.

    0 for equal sketches, inf for unlike shapes, nan when either is not finite. The difference of the norms, which a
    true distance cannot be below, bounds the estimate from below.
    """
    if not (is_finite(a) and is_finite(b)):
        return math.inf if a.numel != b.numel else math.nan
    return max(difference(a, b).norm, abs(a.norm - b.norm))


def relative_distance(a: TensorSketch, b: TensorSketch) -> float:
    """Distance over the norm of `b`; 0 for two zeros, inf for something against nothing."""
    gap = distance(a, b)
    if gap == 0 or math.isnan(gap):
        return gap
    return gap / b.norm if b.norm else math.inf


def inner_product(a: TensorSketch, b: TensorSketch) -> float:
    """Estimated sum of the products of the elements; off by about |a| |b| / 8."""
    return math.fsum(left * right for left, right in zip(a.projection, b.projection, strict=False))


def size(sketch: TensorSketch) -> float:
    """The norm as the sketch estimates it: to be set against other estimates of the same hash."""
    return root_sum_square(sketch.projection)


def root_sum_square(values: Iterable[float]) -> float:
    """Euclidean norm of numbers, such as of the norms of the parts of a whole."""
    return math.sqrt(math.fsum(value * value for value in values))

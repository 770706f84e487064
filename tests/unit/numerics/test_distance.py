"""Distances between sketches."""

import math

import pytest

from fulltilt.numerics.distance import change, difference, distance, inner_product, is_finite, relative_distance, size
from fulltilt.records.record import TensorSketch


def exact(*values: float) -> TensorSketch:
    norm = math.sqrt(sum(value * value for value in values))
    return TensorSketch(norm=norm, projection=values, numel=len(values))


def test_distance_is_the_norm_of_the_difference() -> None:
    assert distance(exact(1, 2, 2), exact(1, -1, 6)) == 5
    assert relative_distance(exact(3, 0), exact(2, 0)) == 0.5


def test_change_is_end_minus_start() -> None:
    assert change(exact(1, 1), exact(4, 5)) == exact(3, 4)


def test_equal_sketches_are_zero_apart_even_if_both_are_zero() -> None:
    assert distance(exact(0, 0), exact(0, 0)) == 0
    assert relative_distance(exact(0, 0), exact(0, 0)) == 0


def test_something_is_infinitely_far_from_nothing_relatively() -> None:
    assert relative_distance(exact(1, 0), exact(0, 0)) == math.inf


def test_unlike_shapes_are_infinitely_far_apart() -> None:
    assert distance(exact(1, 2), exact(1, 2, 0)) == math.inf
    assert difference(exact(1, 2), exact(1, 2, 0)).norm == math.inf


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_distance_to_what_is_not_finite_is_not_a_number(bad: float) -> None:
    assert math.isnan(distance(exact(bad, 1), exact(1, 1)))
    assert math.isnan(relative_distance(exact(1, 1), exact(bad, 1)))
    assert not is_finite(exact(bad, 1))


def test_a_difference_of_norms_is_seen_when_projections_hide_it() -> None:
    a = TensorSketch(norm=10.0, projection=(1.0,) * 64, numel=1000)
    b = TensorSketch(norm=7.0, projection=(1.0,) * 64, numel=1000)
    assert distance(a, b) == 3.0


def test_inner_product_gives_the_length_along_another_tensor() -> None:
    base = exact(3, 4)
    assert inner_product(exact(3.3, 4.4), base) / size(base) ** 2 == pytest.approx(1.1)

"""Two one-sided tests, by simulation: how often they err, and how often they find what is there."""

import math
import random

import pytest

from fulltilt.measure.equivalence import compare_means, is_equivalent, natural_margin


def share_equivalent(num_pairs, *, difference, seed_sd, shared, margin=None, times=1500):
    """Share of simulated checks that come out equivalent; seeds explain `shared` of the variance of both sides."""
    dice = random.Random(f"{num_pairs} {difference} {seed_sd} {shared} {margin}")
    own = seed_sd * math.sqrt(1 - shared)
    found = 0
    for _ in range(times):
        seeds = [1.0 + dice.gauss(0, seed_sd * math.sqrt(shared)) for _ in range(num_pairs)]
        a = [value + dice.gauss(0, own) for value in seeds]
        b = [value + difference + dice.gauss(0, own) for value in seeds]
        found += is_equivalent(compare_means(a, b, scale=1.0, margin_relative=margin))
    return found / times


# Five percent, and three standard errors of a share seen 1500 times.
AT_MOST = 0.05 + 3 * math.sqrt(0.05 * 0.95 / 1500)


@pytest.mark.parametrize("shared", [0.0, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("num_pairs", [2, 4, 8])
def test_a_difference_as_large_as_a_given_margin_is_rarely_called_equivalent(num_pairs, shared):
    assert share_equivalent(num_pairs, difference=0.02, seed_sd=0.01, shared=shared, margin=0.02) <= AT_MOST


@pytest.mark.parametrize("seed_sd", [0.02, 0.003])
@pytest.mark.parametrize("shared", [0.0, 0.9, 0.99])
@pytest.mark.parametrize("num_pairs", [3, 4, 8])
def test_neither_is_one_as_large_as_the_margin_that_is_told_by_seeds(num_pairs, shared, seed_sd):
    true_margin = max(0.01, 2.77 * seed_sd)
    assert share_equivalent(num_pairs, difference=true_margin, seed_sd=seed_sd, shared=shared) <= AT_MOST
    assert share_equivalent(num_pairs, difference=-true_margin, seed_sd=seed_sd, shared=shared) <= AT_MOST


@pytest.mark.parametrize(
    ("num_pairs", "shared", "seed_sd", "at_least"),
    [(4, 0.9, 0.01, 0.9), (3, 0.9, 0.01, 0.75), (4, 0.0, 0.003, 0.85), (8, 0.0, 0.01, 0.75), (4, 0.99, 0.01, 0.98)],
)
def test_no_difference_is_found_equivalent_as_often_as_the_docs_say(num_pairs, shared, seed_sd, at_least):
    assert share_equivalent(num_pairs, difference=0.0, seed_sd=seed_sd, shared=shared) >= at_least


def test_the_stated_power_is_the_share_that_is_found():
    a = [1.0, 1.01, 0.99, 1.02]
    b = [value + shift for value, shift in zip(a, (0.004, -0.004, 0.002, -0.002), strict=True)]
    stated = compare_means(a, b, scale=1.0, margin_relative=0.008).power
    own = math.sqrt(sum(x * x for x in (0.004, 0.004, 0.002, 0.002)) / 3)
    dice, found = random.Random(1), 0
    for _ in range(2000):
        simulated = [value + dice.gauss(0, own) for value in a]
        found += is_equivalent(compare_means(a, simulated, scale=1.0, margin_relative=0.008))
    assert stated == pytest.approx(found / 2000, abs=0.1)


def test_equal_runs_are_equivalent_and_a_constant_shift_beyond_the_margin_is_not():
    same = compare_means([1.0, 2.0], [1.0, 2.0], scale=1.5)
    assert is_equivalent(same)
    assert same.p_difference == 1.0
    assert is_equivalent(compare_means([0.0, 0.0], [0.0, 0.0], scale=0.0))
    shifted = compare_means([1.0, 1.0], [1.5, 1.5], scale=1.0)
    assert not is_equivalent(shifted)
    assert shifted.p_difference == 0.0


def test_the_last_printed_digit_is_no_difference():
    found = compare_means([0.87] * 4, [0.88] * 4, scale=0.87, resolution=0.01)
    assert found.p_difference > 0
    assert found.margin >= 0.01
    assert compare_means([0.87] * 4, [0.88] * 4, scale=0.87).p_difference < 1e-9


def test_as_many_pairs_as_are_said_to_be_needed_decide():
    a, b = [1.0, 1.03, 0.97, 1.0], [1.02, 1.0, 1.0, 0.98]
    wide = compare_means(a, b, scale=1.0, margin_relative=0.02)
    assert not is_equivalent(wide)
    times = math.ceil(wide.num_pairs_needed / 4)
    assert times > 1
    assert is_equivalent(compare_means(a * times, b * times, scale=1.0, margin_relative=0.02))


def test_few_runs_give_a_narrow_margin_and_one_percent_is_the_least():
    assert natural_margin(0.0, 4, 1.0) == 0.01
    assert natural_margin(0.1, 3, 1.0) < natural_margin(0.1, 8, 1.0) < 0.277


@pytest.mark.parametrize(("a", "b"), [([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([1.0, math.nan], [1.0, 1.0])])
def test_what_cannot_be_compared_is_refused(a, b):
    with pytest.raises(ValueError, match=r"cannot be compared|not finite"):
        compare_means(a, b, scale=1.0)

import math

import numpy
import pytest

import simulated_pairs as pairs
from fulltilt.measure.comparison import compare_pairs

SIMULATIONS = 300


@pytest.fixture
def dice():
    return numpy.random.default_rng(7)


def called_different(intervals):
    return sum(interval.low > 1.0 or interval.high < 1.0 for interval in intervals) / len(intervals)


@pytest.mark.parametrize(("num_pairs", "num_blocks"), [(1, 8), (1, 16), (2, 10), (3, 8)])
def test_identical_processes_are_rarely_called_different(dice, num_pairs, num_blocks):
    intervals = [
        compare_pairs([pairs.simulated_pair(dice, num_blocks=num_blocks) for _ in range(num_pairs)])
        for _ in range(SIMULATIONS)
    ]
    assert called_different(intervals) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / SIMULATIONS)


def test_a_gain_of_thirty_per_cent_is_found_with_two_pairs(dice):
    intervals = [
        compare_pairs([pairs.simulated_pair(dice, speedup=1.3) for _ in range(2)]) for _ in range(SIMULATIONS // 3)
    ]
    assert sum(interval.low > 1.0 for interval in intervals) >= 0.98 * len(intervals)


def test_blocks_that_are_many_times_as_long_do_not_turn_the_sign(dice):
    intervals = [
        compare_pairs([pairs.simulated_pair(dice, speedup=1.3, spikes=0.2) for _ in range(3)])
        for _ in range(SIMULATIONS // 3)
    ]
    assert all(interval.high > 1.0 for interval in intervals)
    assert sum(interval.median > 1.15 for interval in intervals) >= 0.98 * len(intervals)


def test_equal_data_give_equal_intervals(dice):
    data = [pairs.simulated_pair(dice)]
    assert compare_pairs(data) == compare_pairs(data)


def test_one_quiet_pair_cannot_claim_what_a_restart_explains():
    interval = compare_pairs([pairs.pair_of([0.03] * 16)])
    assert interval.low < 1.0 < interval.high


def test_noisy_identical_pairs_of_the_same_tune_widen_the_interval():
    data = [pairs.pair_of([0.1, 0.12, 0.11, 0.1, 0.09, 0.1])] * 2
    quiet, noisy = compare_pairs(data), compare_pairs(data, extra_pair_log_ratios=[0.2])
    assert noisy.high / noisy.low > quiet.high / quiet.low


def test_swapping_the_two_inverts_the_interval():
    forward = compare_pairs([pairs.pair_of([0.2, 0.25, 0.22, 0.2])])
    back = compare_pairs([pairs.pair_of([-0.2, -0.25, -0.22, -0.2])])
    assert forward.median == pytest.approx(1 / back.median)
    assert forward.low == pytest.approx(1 / back.high, rel=1e-3)


def test_busy_blocks_are_left_out_while_enough_calm_ones_remain():
    interval = compare_pairs([pairs.pair_of([0.0] * 6 + [3.0, 3.0], busy={6, 7})])
    assert (interval.num_blocks, interval.num_busy_blocks) == (6, 2)
    assert interval.median == pytest.approx(1.0)


def test_on_a_machine_that_is_always_busy_all_blocks_count():
    interval = compare_pairs([pairs.pair_of([0.1] * 6, busy=set(range(6)))])
    assert (interval.num_blocks, interval.num_busy_blocks) == (6, 0)


def test_no_block_is_an_error():
    with pytest.raises(ValueError, match="no pair of processes has a block"):
        compare_pairs([])

import pytest

import simulated_pairs as pairs
from fulltilt.measure.breakeven import break_even_steps
from fulltilt.measure.floor import aa_floor
from fulltilt.measure.holm import holm
from fulltilt.measure.noise import busy_reason, is_busy, usable_blocks
from fulltilt.measure.sequential import should_stop


def test_holm_stops_at_the_first_that_fails():
    assert holm({"a": 0.001, "b": 0.04, "c": 0.03}) == {"a": True, "c": False, "b": False}
    assert holm({"a": 0.001, "b": 0.02, "c": 0.03}) == {"a": True, "b": True, "c": True}


def test_the_floor_is_one_per_cent_or_what_identical_runs_showed():
    assert aa_floor([]) == 0.01
    assert aa_floor([pairs.pair_of([0.001] * 8)]) == 0.01
    assert aa_floor([pairs.pair_of([-0.05] * 8)]) == pytest.approx(0.0513, abs=1e-3)


def test_a_block_is_busy_when_others_used_a_tenth_of_a_core():
    calm, busy, unknown = pairs.block(1.0, 0.05), pairs.block(1.0, 0.3), pairs.block(1.0, None)
    assert not is_busy(calm, calm, 2)
    assert is_busy(calm, busy, 2)
    assert busy_reason(busy, 2) == "other processes used 0.3 of 2 cores"
    assert busy_reason(unknown, 2) is None


def test_what_is_left_out_is_said():
    blocks = pairs.pair_of([0.0] * 8, busy={1}).blocks
    used, note = usable_blocks(blocks)
    assert len(used) == 7
    assert "1 of 8 blocks left out" in note


@pytest.mark.parametrize(
    ("ratios", "stop", "words"),
    [
        ([0.0] * 5, False, "fewer than 6"),
        ([0.5, 0.51, 0.5, 0.49, 0.5, 0.5], True, "clearly faster"),
        ([-0.3, -0.31, -0.3, -0.29, -0.3, -0.3], True, "out of reach"),
        ([0.04, 0.041, 0.039, 0.04, 0.041, 0.04], True, "another block would tell nothing"),
        ([0.3, -0.2, 0.25, 0.1, -0.1, 0.2], False, "not yet certain"),
        ([0.3, -0.2] * 8, True, "16 blocks"),
    ],
)
def test_sampling_goes_on_until_the_answer_would_not_change(ratios, stop, words):
    decision = should_stop(pairs.pair_of(ratios).blocks, floor=0.01, max_blocks=16)
    assert (decision.stop, words in decision.reason) == (stop, True), decision


def test_break_even():
    assert break_even_steps(1.0, 0.5, 10.0) == 20
    assert break_even_steps(1.0, 0.5, 0.0) == 0
    assert break_even_steps(1.0, 1.1, 10.0) is None

import numpy
import pytest

from fulltilt.measure.warmup import warmup_excess_seconds, warmup_steps

FLAT = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.01, 0.99, 1.0]


def test_flat_times_have_no_warmup():
    assert warmup_steps(FLAT) == 0


@pytest.mark.parametrize("slow", [1, 3])
def test_slow_first_steps_are_warmup(slow):
    assert warmup_steps([40.0] * slow + FLAT) == slow


def test_a_decay_ends_when_it_has_come_down():
    times = [1 + 3 * 0.5**step for step in range(30)]
    assert 3 <= warmup_steps(times) <= 8


def test_a_burst_every_sixteen_steps_is_no_warmup():
    times = ([20.0] + [1.0] * 15) * 4
    assert warmup_steps(times) <= 1


def test_a_late_spike_is_no_warmup():
    assert warmup_steps([*FLAT, 30.0, *FLAT]) == 0


def test_never_more_than_half():
    assert warmup_steps(list(numpy.linspace(10, 1, 20))) <= 10


@pytest.mark.parametrize("times", [[], [1.0], [5.0, 1.0]])
def test_too_few_steps_to_tell(times):
    assert warmup_steps(times) == 0


def test_the_excess_is_what_came_on_top():
    assert warmup_excess_seconds([41.0, 11.0, *[1.0] * 10], 2) == pytest.approx(50.0)
    assert warmup_excess_seconds([1.0] * 5, 0) == 0.0

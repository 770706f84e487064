from collections.abc import Callable

from fulltilt.records.journal import SpeedupInterval
from fulltilt.report.speed_chart import speed_axis, speed_row, speed_scale

Speedup = Callable[..., SpeedupInterval]


def test_the_colour_of_a_bar_tells_the_difference(speedup: Speedup) -> None:
    gains = {"faster": speedup(1.4), "slower": speedup(0.8), "even": speedup(1.01, 0.02)}
    scale = speed_scale(gains.values(), 0.02)
    for tone, gain in gains.items():
        assert f'class="{tone}"' in str(speed_row(gain, scale, 0.02))


def test_the_floor_is_shaded_and_the_interval_is_said(speedup: Speedup) -> None:
    gain = speedup(1.4, 0.0, low=1.3, high=1.5)
    row = str(speed_row(gain, speed_scale([gain], 0.02), 0.02))
    assert 'class="floor"' in row
    assert 'aria-label="1.40x [1.30, 1.50]"' in row


def test_nothing_is_drawn_of_what_was_not_measured(speedup: Speedup) -> None:
    unmeasured = speedup(1.0, num_blocks=0)
    scale = speed_scale([unmeasured, None], 0.0)
    assert speed_row(unmeasured, scale, 0.0) == ""
    assert ">1x</text>" in str(speed_axis(scale))

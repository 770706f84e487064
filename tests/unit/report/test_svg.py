import pytest

from fulltilt.report.svg import bar, element, ratio_scale, ratio_ticks


def test_text_and_attributes_are_escaped(hostile: str) -> None:
    text = str(element("text", hostile, class_=hostile, stroke_width=1.25))
    assert "<script>" not in text
    assert 'stroke-width="1.2"' in text
    assert text.encode("utf-8")


def test_equal_factors_are_equally_far_apart() -> None:
    scale = ratio_scale([0.5, 2.0], floor=0.0, start=0.0, end=100.0)
    one = scale.position(1.0)
    assert scale.position(2.0) - one == pytest.approx(one - scale.position(0.5))


def test_positions_stay_inside_of_the_axis() -> None:
    scale = ratio_scale([1.1], floor=0.01, start=10.0, end=90.0)
    assert scale.position(1e-9) == 10.0
    assert scale.position(1e9) == 90.0


@pytest.mark.parametrize("ratios", [[], [1.0], [1.004], [0.9, 1.3], [0.2, 3.0], [1.0, 40.0], [1e-5, 1e5]])
def test_ticks_are_few_and_inside_and_hold_one(ratios: list[float]) -> None:
    scale = ratio_scale(ratios, floor=0.01, start=0.0, end=100.0)
    ticks = ratio_ticks(scale)
    assert 1.0 in ticks
    assert 1 <= len(ticks) <= 10
    assert all(scale.low <= tick <= scale.high for tick in ticks)


@pytest.mark.parametrize(("share", "width"), [(-1.0, "0"), (0.5, "50"), (7.0, "100")])
def test_a_bar_never_leaves_its_track(share: float, width: str) -> None:
    assert f'<rect width="{width}" height="10" class="after">' in str(bar(share, label="", class_="after"))

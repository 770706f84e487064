"""The speed-ups of a table as bars on one axis: the bar ends at the median, the line over it is the interval."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from fulltilt.records.journal import SpeedupInterval
from fulltilt.report.svg import RatioScale, chart, element, ratio_scale, ratio_ticks, tick_words
from fulltilt.report.words import interval_words, is_different, is_measured

_WIDTH, _HEIGHT, _EDGE = 260.0, 30.0, 14.0


def speed_scale(speedups: Iterable[SpeedupInterval | None], floor: float) -> RatioScale:
    """The axis that all rows of a table share."""
    ratios = [
        ratio
        for speedup in speedups
        if speedup is not None and is_measured(speedup)
        for ratio in (speedup.low, speedup.high)
    ]
    return ratio_scale(ratios, floor=floor, start=_EDGE, end=_WIDTH - _EDGE)


def speed_axis(scale: RatioScale) -> Markup:
    """The head of the column: labelled ticks."""
    labels = [
        element("text", tick_words(tick), x=scale.position(tick), y=14, class_="tick", text_anchor="middle")
        for tick in ratio_ticks(scale)
    ]
    return chart(*labels, width=_WIDTH, height=20, label="Axis of speed-ups", class_="speed axis")


def speed_row(speedup: SpeedupInterval, scale: RatioScale, floor: float) -> Markup:
    """One row: floor shaded, bar from 1 to the median, interval over it. Empty when nothing was measured."""
    if not is_measured(speedup):
        return Markup("")
    one, median = scale.position(1.0), scale.position(speedup.median)
    low, high = scale.position(speedup.low), scale.position(speedup.high)
    middle = _HEIGHT / 2
    whisker = f"M{low:.1f} {middle - 5}v10m0 -5H{high:.1f}m0 -5v10"
    return chart(
        _floor(scale, floor),
        element("line", x1=one, x2=one, y1=0, y2=_HEIGHT, class_="one"),
        element(
            "rect", x=min(one, median), width=abs(median - one), y=middle - 6, height=12, class_=_tone(speedup, floor)
        ),
        element("path", d=whisker, class_="whisker"),
        width=_WIDTH,
        height=_HEIGHT,
        label=interval_words(speedup, floor),
        class_="speed",
    )


def _floor(scale: RatioScale, floor: float) -> Markup:
    low, high = scale.position(1 / (1 + floor)), scale.position(1 + floor)
    return element("rect", x=low, width=high - low, y=0, height=_HEIGHT, class_="floor")


def _tone(speedup: SpeedupInterval, floor: float) -> str:
    if not is_different(speedup, floor):
        return "even"
    return "faster" if speedup.median > 1 else "slower"

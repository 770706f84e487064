"""Loss curves of several runs: for each side a band from the lowest to the highest, and the mean as a line."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup

from fulltilt.records.long_run import CurveBand, Equivalence
from fulltilt.report.svg import chart, element

_WIDTH, _HEIGHT = 720.0, 260.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 700.0, 10.0, 228.0
_MOST_TICKS = 6
_SHARE_SHOWN = 0.98
"""Of the values: a few spikes must not flatten the rest; they are drawn at the edge."""

_INTERVAL_WIDTH, _INTERVAL_HEIGHT = 220.0, 26.0
_MOST_MARGINS = 3.0

Side = Sequence[tuple[float, float, float]]


def curve_chart(band: CurveBand) -> Markup:
    """The chart of one loss curve; empty where nothing is finite."""
    low, high = _extent((*band.a, *band.b))
    if not band.bin_steps or not low < high:
        return Markup("")
    last = band.bin_steps[-1]

    def x(step: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * step / last

    def y(value: float) -> float:
        share = (value - low) / (high - low)
        return _BOTTOM + min(1.0, max(0.0, share)) * (_TOP - _BOTTOM)

    places = [x(step) for step in band.bin_steps]
    return chart(
        *(part for tick in _ticks(low, high) for part in _horizontal(tick, y(tick))),
        *(
            element("text", f"{tick:g}", x=x(tick), y=_HEIGHT - 12, class_="tick", text_anchor="middle")
            for tick in _ticks(0, last)
        ),
        *_side(band.a, places, y, "a"),
        *_side(band.b, places, y, "b"),
        width=_WIDTH,
        height=_HEIGHT,
        label=f"Loss over {last} steps, as it is and under the recipe",
        class_="curves",
    )


def interval_chart(found: Equivalence) -> Markup:
    """Difference and interval in margins: the shaded band is where equivalence is."""
    if found.margin <= 0 or not all(map(math.isfinite, (found.low, found.high))):
        return Markup("")

    def x(value: float) -> float:
        share = min(1.0, max(-1.0, value / found.margin / _MOST_MARGINS))
        return _INTERVAL_WIDTH / 2 * (1 + 0.94 * share)

    middle = _INTERVAL_HEIGHT / 2
    low, high = x(found.low), x(found.high)
    return chart(
        element(
            "rect",
            x=x(-found.margin),
            width=x(found.margin) - x(-found.margin),
            y=0,
            height=_INTERVAL_HEIGHT,
            class_="floor",
        ),
        element("line", x1=x(0), x2=x(0), y1=0, y2=_INTERVAL_HEIGHT, class_="one"),
        element("path", d=f"M{low:.1f} {middle - 5}v10m0 -5H{high:.1f}m0 -5v10", class_="whisker"),
        element("path", d=f"M{x(found.difference):.1f} {middle}h0", class_="dots"),
        width=_INTERVAL_WIDTH,
        height=_INTERVAL_HEIGHT,
        label=f"difference {found.difference:.3g} from {found.low:.3g} to {found.high:.3g}, margin {found.margin:.3g}",
        class_="speed",
    )


def _extent(points: Side) -> tuple[float, float]:
    values = sorted(value for point in points for value in point if math.isfinite(value))
    if not values:
        return 0.0, 0.0
    left_out = int(len(values) * (1 - _SHARE_SHOWN) / 2)
    low, high = values[left_out], values[len(values) - 1 - left_out]
    air = 0.04 * (high - low) or 0.04 * abs(high) or 1e-9
    return low - air, high + air


def _horizontal(tick: float, y: float) -> list[Markup]:
    return [
        element("line", x1=_LEFT, x2=_RIGHT, y1=y, y2=y, class_="grid"),
        element("text", f"{tick:.4g}", x=_LEFT - 6, y=y + 4, class_="tick", text_anchor="end"),
    ]


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between the ends."""
    rough = (high - low) / _MOST_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _side(points: Side, places: Sequence[float], y: Callable[[float], float], side: str) -> list[Markup]:
    finite = [
        (place, *map(y, point)) for place, point in zip(places, points, strict=False) if all(map(math.isfinite, point))
    ]
    if not finite:
        return []
    forth = " ".join(f"{place:.1f},{low:.1f}" for place, low, _, _ in finite)
    back = " ".join(f"{place:.1f},{high:.1f}" for place, _, _, high in reversed(finite))
    line = " ".join(f"{place:.1f},{mean:.1f}" for place, _, mean, _ in finite)
    return [
        element("polygon", points=f"{forth} {back}", class_=f"band-{side}"),
        element("polyline", points=line, class_=f"mean-{side}"),
    ]

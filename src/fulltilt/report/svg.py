"""Small pieces of inline SVG. Colours are classes of the page's style sheet, so that charts follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup, escape

from fulltilt.report.printable import printable


def element(tag: str, *children: str, **attributes: str | float) -> Markup:
    """One element, its text and attributes escaped. `class_` is class, `stroke_width` is stroke-width."""
    named = "".join(f' {_name(key)}="{_value(value)}"' for key, value in attributes.items())
    inside = "".join(child if isinstance(child, Markup) else escape(printable(child)) for child in children)
    return Markup(f"<{tag}{named}>{inside}</{tag}>")


def chart(*children: Markup, width: float, height: float, label: str, class_: str, stretch: bool = False) -> Markup:
    """An <svg> that scales with its place; `label` is what a screen reader says."""
    fit: dict[str, str | float] = {"preserveAspectRatio": "none"} if stretch else {}
    return element(
        "svg",
        *children,
        viewBox=f"0 0 {_value(width)} {_value(height)}",
        class_=class_,
        role="img",
        aria_label=label,
        **fit,
    )


def bar(share: float, *, label: str, class_: str) -> Markup:
    """A bar that fills `share` (0 to 1) of its width. SVG, as browsers print no backgrounds."""
    filled = 100 * min(1.0, max(0.0, share))
    track = element("rect", width=100, height=10, class_="track")
    fill = element("rect", width=filled, height=10, class_=class_)
    return chart(track, fill, width=100, height=10, label=label, class_="bar", stretch=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class RatioScale:
    """Ratios on a logarithmic axis: twice as fast is as far from 1 as half as fast."""

    low: float
    high: float
    start: float
    """Pixel of `low`."""
    end: float
    """Pixel of `high`; less than `start` on an axis that points up."""

    def position(self, ratio: float) -> float:
        """Pixel of `ratio`, kept inside of the axis."""
        share = math.log(ratio / self.low) / math.log(self.high / self.low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)


def ratio_scale(ratios: Iterable[float], *, floor: float, start: float, end: float, air: float = 0.08) -> RatioScale:
    """A scale that holds `ratios`, 1 and the floor around it, with some air; never narrower than 1 %."""
    logs = [math.log(ratio) for ratio in ratios if math.isfinite(ratio) and ratio > 0]
    reach = max(math.log1p(floor), 0.005)
    low, high = min([-reach, *logs]), max([reach, *logs])
    margin = air * (high - low)
    return RatioScale(low=math.exp(low - margin), high=math.exp(high + margin), start=start, end=end)


def ratio_ticks(scale: RatioScale, *, most: int = 5) -> list[float]:
    """Round ratios to label, 1 among them."""
    for step in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0):
        first, last = math.ceil(scale.low / step), math.floor(scale.high / step)
        if last - first < most:
            return [round(number * step, 3) for number in range(first, last + 1) if number > 0]
    powers = [10.0**exponent for exponent in range(-6, 7)]
    ladder = powers if scale.high / scale.low > 100 else sorted([*powers, *(2 * power for power in powers)])
    return [tick for tick in ladder if scale.low <= tick <= scale.high][: 2 * most]


def tick_words(ratio: float) -> str:
    """ "1.25x"."""
    return f"{ratio:g}x"


def _name(key: str) -> str:
    return key.removesuffix("_").replace("_", "-")


def _value(value: str | float) -> str:
    if isinstance(value, str):
        return str(escape(printable(value)))
    return f"{value:.1f}".removesuffix(".0")

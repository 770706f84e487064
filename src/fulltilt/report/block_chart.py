"""A comparison block by block: one dot for each ratio of times, by pair of processes; busy blocks are hollow."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fulltilt.records.journal import ComparisonRecord, PairedBlock
from fulltilt.report.svg import RatioScale, chart, element, ratio_scale, ratio_ticks, tick_words
from fulltilt.report.words import count_words, is_measured

_WIDTH, _HEIGHT = 460.0, 180.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 48.0, 452.0, 8.0, 158.0
_MOST_LABELLED_PAIRS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class _Dot:
    ratio: float
    busy: bool
    x: float


def block_chart(comparison: ComparisonRecord, *, floor: float) -> Markup:
    """The chart of a comparison; empty when it has no block.

    Ratios are of A's time over B's: above 1, B is faster. The axis is logarithmic. It spans the blocks that count;
    a busy block beyond it is drawn at its edge.
    """
    pairs = _dots(comparison)
    if not pairs:
        return Markup("")
    scale = _scale(pairs, comparison, floor)
    return chart(
        _band(scale.position(1 / (1 + floor)), scale.position(1 + floor), "floor"),
        *_interval(comparison, scale),
        *_ticks(scale),
        *(part for number, dots in enumerate(pairs, 1) for part in _pair(number, dots, scale, len(pairs))),
        width=_WIDTH,
        height=_HEIGHT,
        label=_label(pairs),
        class_="blocks",
    )


def _dots(comparison: ComparisonRecord) -> list[list[_Dot]]:
    kept = [[block for block in pair.blocks if _has_ratio(block)] for pair in comparison.pairs]
    kept = [blocks for blocks in kept if blocks]
    num_slots = sum(map(len, kept)) + len(kept)
    slot = (_RIGHT - _LEFT) / max(1, num_slots)
    pairs, position = [], 0.0
    for blocks in kept:
        pairs.append([_dot(block, _LEFT + (position + index + 1) * slot) for index, block in enumerate(blocks)])
        position += len(blocks) + 1
    return pairs


def _has_ratio(block: PairedBlock) -> bool:
    return all(part.num_steps > 0 and part.seconds > 0 and math.isfinite(part.seconds) for part in (block.a, block.b))


def _dot(block: PairedBlock, x: float) -> _Dot:
    return _Dot(ratio=block.a.seconds_per_step / block.b.seconds_per_step, busy=block.busy, x=x)


def _scale(pairs: Sequence[Sequence[_Dot]], comparison: ComparisonRecord, floor: float) -> RatioScale:
    dots = [dot for pair in pairs for dot in pair]
    ratios = [dot.ratio for dot in dots if not dot.busy] or [dot.ratio for dot in dots]
    if comparison.speedup is not None and is_measured(comparison.speedup):
        ratios += [comparison.speedup.low, comparison.speedup.high]
    return ratio_scale(ratios, floor=floor, start=_BOTTOM, end=_TOP)


def _interval(comparison: ComparisonRecord, scale: RatioScale) -> list[Markup]:
    speedup = comparison.speedup
    if speedup is None or not is_measured(speedup):
        return []
    return [_band(scale.position(speedup.low), scale.position(speedup.high), "interval")]


def _band(bottom: float, top: float, class_: str) -> Markup:
    return element("rect", x=_LEFT, width=_RIGHT - _LEFT, y=top, height=bottom - top, class_=class_)


def _ticks(scale: RatioScale) -> list[Markup]:
    parts = []
    for tick in ratio_ticks(scale):
        y = scale.position(tick)
        parts.append(element("line", x1=_LEFT, x2=_RIGHT, y1=y, y2=y, class_="one" if tick == 1 else "grid"))
        parts.append(element("text", tick_words(tick), x=_LEFT - 6, y=y + 4, class_="tick", text_anchor="end"))
    return parts


def _pair(number: int, dots: Sequence[_Dot], scale: RatioScale, num_pairs: int) -> list[Markup]:
    """All dots of a kind are one path of points with round caps: a tenth of the bytes of circles."""
    counted = [dot for dot in dots if not dot.busy]
    busy = [dot for dot in dots if dot.busy]
    parts = []
    if counted:
        y = scale.position(statistics.median(dot.ratio for dot in counted))
        parts.append(element("line", x1=dots[0].x - 4, x2=dots[-1].x + 4, y1=y, y2=y, class_="median"))
        parts.append(element("path", d=_points(counted, scale), class_="dots"))
    if busy:
        parts.append(element("path", d=_points(busy, scale), class_="dots"))
        parts.append(element("path", d=_points(busy, scale), class_="holes"))
    if num_pairs <= _MOST_LABELLED_PAIRS:
        middle = (dots[0].x + dots[-1].x) / 2
        words = f"pair {number}" if num_pairs <= _MOST_LABELLED_PAIRS // 2 else str(number)
        parts.append(element("text", words, x=middle, y=_HEIGHT - 5, class_="tick", text_anchor="middle"))
    return parts


def _points(dots: Sequence[_Dot], scale: RatioScale) -> str:
    return "".join(f"M{dot.x:.1f} {scale.position(dot.ratio):.1f}h0" for dot in dots)


def _label(pairs: Sequence[Sequence[_Dot]]) -> str:
    dots = [dot for pair in pairs for dot in pair]
    ratios = [dot.ratio for dot in dots]
    num_busy = sum(dot.busy for dot in dots)
    return (
        f"{count_words(len(dots), 'block')} in {count_words(len(pairs), 'pair')}, ratios from {min(ratios):.3f} to "
        f"{max(ratios):.3f}, median {statistics.median(ratios):.3f}; {count_words(num_busy, 'busy block')}"
    )

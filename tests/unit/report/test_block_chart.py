import dataclasses
import re
from collections.abc import Callable

from fulltilt.records.journal import Block, ComparisonRecord, PairedBlock, PairRecord
from fulltilt.report.block_chart import block_chart

Compare = Callable[..., ComparisonRecord]


def block(ratio: float, *, busy: bool = False) -> PairedBlock:
    return PairedBlock(a=Block(num_steps=5, seconds=ratio), b=Block(num_steps=5, seconds=1.0), a_first=True, busy=busy)


def with_blocks(comparison: ComparisonRecord, *pairs: tuple[PairedBlock, ...]) -> ComparisonRecord:
    records = tuple(PairRecord(a_trial="a", b_trial="b", blocks=blocks) for blocks in pairs)
    return dataclasses.replace(comparison, pairs=records)


def points(chart: str, class_: str) -> list[tuple[float, float]]:
    paths = re.findall(rf'<path d="([^"]*)" class="{class_}">', chart)
    return [(float(x), float(y)) for path in paths for x, y in re.findall(r"M([\d.]+) ([\d.]+)h0", path)]


def test_every_block_is_a_dot_and_busy_ones_are_hollow(compare: Compare) -> None:
    comparison = with_blocks(compare("x", (), (), ratio=1.2), (block(1.2), block(1.1, busy=True)), (block(1.3),))
    chart = str(block_chart(comparison, floor=0.01))
    dots, holes = points(chart, "dots"), points(chart, "holes")
    assert len(dots) == 3
    assert len(holes) == 1
    assert holes[0] in dots


def test_a_faster_candidate_is_drawn_higher(compare: Compare) -> None:
    comparison = with_blocks(compare("x", (), (), ratio=1.0), (block(1.0), block(1.5)))
    (_, slow), (_, fast) = points(str(block_chart(comparison, floor=0.0)), "dots")
    assert fast < slow


def test_pairs_stand_apart_and_are_named(compare: Compare) -> None:
    comparison = with_blocks(compare("x", (), (), ratio=1.2), (block(1.2), block(1.2)), (block(1.2),))
    chart = str(block_chart(comparison, floor=0.01))
    first, second, third = (x for x, _ in points(chart, "dots"))
    assert third - second > 1.5 * (second - first)
    assert "pair 1" in chart
    assert "pair 2" in chart


def test_a_disturbed_block_does_not_flatten_the_others(compare: Compare) -> None:
    comparison = with_blocks(compare("x", (), (), ratio=1.2), (block(1.19), block(1.21), block(90.0, busy=True)))
    chart = str(block_chart(comparison, floor=0.01))
    heights = [y for _, y in points(chart, "dots")]
    assert heights[0] - heights[1] > 5
    assert min(heights) >= 8


def test_blocks_without_a_ratio_are_left_out(compare: Compare) -> None:
    instant = PairedBlock(a=Block(num_steps=5, seconds=0.0), b=Block(num_steps=5, seconds=1.0), a_first=True)
    comparison = compare("x", (), (), ratio=1.2)
    assert block_chart(with_blocks(comparison, (instant,)), floor=0.01) == ""
    assert len(points(str(block_chart(with_blocks(comparison, (instant, block(1.1))), floor=0.0)), "dots")) == 1


def test_a_screen_reader_hears_the_numbers(compare: Compare) -> None:
    comparison = with_blocks(compare("x", (), (), ratio=1.2), (block(1.2), block(1.1, busy=True), block(1.3)))
    label = "3 blocks in 1 pair, ratios from 1.100 to 1.300, median 1.200; 1 busy block"
    assert f'aria-label="{label}"' in str(block_chart(comparison, floor=0.01))

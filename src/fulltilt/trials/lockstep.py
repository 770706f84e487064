"""Two live trials, one paused while the other runs a block of steps, in alternating order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fulltilt.records.journal import Block, PairedBlock
from fulltilt.trials.contract import Ended, LiveTrial

Judge = Callable[[Sequence[PairedBlock]], bool]
"""Called after every pair of blocks: True to stop."""


def run_lockstep(
    a: LiveTrial, b: LiveTrial, *, num_steps: int, stop: Judge, deadline: float
) -> tuple[list[PairedBlock], Ended | None]:
    """Blocks of `num_steps` steps of A and B in the order AB BA AB ..., until `stop` says so or one of the two ends."""
    blocks: list[PairedBlock] = []
    while True:
        a_first = len(blocks) % 2 == 0
        first = (a if a_first else b).run_block(num_steps, deadline)
        if isinstance(first, Ended):
            return blocks, first
        second = (b if a_first else a).run_block(num_steps, deadline)
        if isinstance(second, Ended):
            return blocks, second
        blocks.append(_paired(first, second, a_first))
        if stop(blocks):
            return blocks, None


def _paired(first: Block, second: Block, a_first: bool) -> PairedBlock:
    a, b = (first, second) if a_first else (second, first)
    return PairedBlock(a=a, b=b, a_first=a_first)

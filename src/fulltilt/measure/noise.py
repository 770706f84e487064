"""Blocks in which something else used the machine."""

from __future__ import annotations

from collections.abc import Sequence

from fulltilt.records.journal import Block, PairedBlock

BUSY_SHARE = 0.10
"""Foreign CPU time above this share of one core's time marks a block: with two OpenMP threads on two cores, a tenth of
a core taken away at the wrong moment delays every barrier."""

MIN_CALM_BLOCKS = 4


def is_busy(a: Block, b: Block, num_cpus: int) -> bool:
    """Was the machine used by something else during either block of a pair?"""
    return busy_reason(a, num_cpus) is not None or busy_reason(b, num_cpus) is not None


def busy_reason(block: Block, num_cpus: int) -> str | None:
    """What speaks for another load during the block; None when nothing does, or when it is not known."""
    if block.foreign_cpu_seconds is None or block.seconds <= 0:
        return None
    share = block.foreign_cpu_seconds / block.seconds
    if share <= BUSY_SHARE:
        return None
    return f"other processes used {share:.1f} of {num_cpus} cores"


def usable_blocks(blocks: Sequence[PairedBlock]) -> tuple[tuple[PairedBlock, ...], str]:
    """The blocks to estimate from, and a note when that is not all or not only calm ones.

    Busy blocks are left out while at least half of all, and at least four, are calm. On a machine that is always busy
    there is no calm to choose: then all blocks count.
    """
    calm = tuple(block for block in blocks if not block.busy)
    if len(calm) == len(blocks):
        return calm, ""
    if len(calm) >= MIN_CALM_BLOCKS and 2 * len(calm) >= len(blocks):
        return calm, f"{len(blocks) - len(calm)} of {len(blocks)} blocks left out: the machine was busy"
    return tuple(blocks), f"the machine was busy in {len(blocks) - len(calm)} of {len(blocks)} blocks; all are used"

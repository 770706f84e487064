"""When a pair of processes has told enough: sampling goes on until more blocks would not change the answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fulltilt.measure.comparison import DEFAULT_RESTART_SD
from fulltilt.measure.pair import estimate_pair
from fulltilt.records.journal import PairedBlock

LOOK_CONSTANT = 2.9
"""Looking after every block up to sixteen times at z = 1.96 would err in a fifth of all cases. Pocock's (1977)
constants for ten to twenty looks at 5 % are 2.56 to 2.67; the rest is for blocks that are not independent."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Stop or go on, and why."""

    stop: bool
    reason: str


def should_stop(blocks: Sequence[PairedBlock], *, floor: float, max_blocks: int, min_blocks: int = 6) -> Decision:
    """Has this pair told enough? `floor` is the relative gain under which nothing is claimed."""
    if len(blocks) >= max_blocks:
        return Decision(True, f"{max_blocks} blocks each, the most for one pair")
    if len(blocks) < min_blocks:
        return Decision(False, f"fewer than {min_blocks} blocks each")
    estimate = estimate_pair(blocks)
    reach = LOOK_CONSTANT * math.hypot(estimate.standard_error, DEFAULT_RESTART_SD)
    if estimate.center + reach < math.log1p(floor):
        return Decision(True, "a gain above the floor is out of reach")
    if estimate.center - reach > math.log1p(floor):
        return Decision(True, "clearly faster")
    if estimate.standard_error < DEFAULT_RESTART_SD / 3:
        return Decision(True, "known better than a restart varies; another block would tell nothing")
    return Decision(False, "not yet certain")

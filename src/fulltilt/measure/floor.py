"""The relative difference under which a tune claims nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fulltilt.measure.pair import estimate_pair
from fulltilt.records.journal import PairRecord

MIN_FLOOR = 0.01
"""Under one per cent no claim is made, however small the interval: a restart undoes it."""


def aa_floor(aa: Sequence[PairRecord]) -> float:
    """At least 1 %; the root mean square difference of the A/A pairs of this tune where that is more.

    An interval says what chance explains; the floor says what identical processes were *seen* to differ by here.
    """
    centers = [estimate_pair(pair.blocks).center for pair in aa if pair.blocks]
    if not centers:
        return MIN_FLOOR
    return max(MIN_FLOOR, math.expm1(math.sqrt(math.fsum(center**2 for center in centers) / len(centers))))

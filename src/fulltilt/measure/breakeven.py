"""After how many steps a slow start has paid for itself."""

from __future__ import annotations

import math


def break_even_steps(
    baseline_step_seconds: float, recipe_step_seconds: float, extra_startup_seconds: float
) -> int | None:
    """Steps until the recipe is ahead; 0 when it starts no more slowly, None when its steps are not faster."""
    if extra_startup_seconds <= 0:
        return 0
    if recipe_step_seconds >= baseline_step_seconds:
        return None
    return math.ceil(extra_startup_seconds / (baseline_step_seconds - recipe_step_seconds))

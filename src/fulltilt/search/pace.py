"""How many steps to a block: from the time of a step, the budget, and the length of the run where it is known."""

from __future__ import annotations

from dataclasses import dataclass

EVIDENCE_STEPS = 6
PROFILE_STEPS = 6
EXAMINED_STEPS = 48
"""The numbers of a recipe are judged by this many steps before it is given, where the budget has time for it."""
_EXAMINED_SHARE = 0.2
"""Of the budget, at most, for all runs that this takes."""
MIN_TOTAL_STEPS = 12
"""Fewer steps than this cannot be compared: evidence takes the first, warm-up the next."""
_MAX_BLOCKS = 16
_SHORT_RUN_BLOCKS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """The rhythm of all comparisons of one tune."""

    evidence_steps: int = EVIDENCE_STEPS
    profile_steps: int = PROFILE_STEPS
    block_steps: int = 1
    max_blocks: int = _MAX_BLOCKS
    """Blocks of one pair of processes, at most."""
    warmup_steps: int = 2
    """Steps between evidence and the first block, at least."""


def opening_pace(total_steps: int | None) -> Pace:
    """The rhythm before a step's time is known. A run known to be short gives most of its steps to comparing."""
    if total_steps is None:
        return Pace()
    evidence = max(2, min(EVIDENCE_STEPS, total_steps // 5))
    return Pace(evidence_steps=evidence, profile_steps=min(PROFILE_STEPS, evidence), warmup_steps=1)


def measured_pace(opening: Pace, *, step_seconds: float, budget_seconds: float, total_steps: int | None) -> Pace:
    """The rhythm once a step's time is known: blocks of about a second, shorter for small budgets and short runs."""
    block_seconds = min(1.2, max(0.25, budget_seconds / 400))
    block_steps = max(1, round(block_seconds / step_seconds))
    max_blocks = _MAX_BLOCKS
    if total_steps is not None:
        left = total_steps - opening.evidence_steps - opening.warmup_steps - 1
        block_steps = max(1, min(block_steps, left // _SHORT_RUN_BLOCKS))
        max_blocks = max(1, min(_MAX_BLOCKS, left // block_steps))
    return Pace(
        evidence_steps=opening.evidence_steps,
        profile_steps=opening.profile_steps,
        block_steps=block_steps,
        max_blocks=max_blocks,
        warmup_steps=max(opening.warmup_steps, min(block_steps, 20)),
    )


def examined_steps(
    evidence_steps: int,
    *,
    num_runs: int,
    step_seconds: float,
    start_seconds: float,
    budget_seconds: float,
    total_steps: int | None,
) -> int:
    """How many steps a recipe's numbers are judged by, when `num_runs` runs must fit into their share of the budget."""
    seconds = _EXAMINED_SHARE * budget_seconds / num_runs - start_seconds
    affordable = int(seconds / max(step_seconds, 1e-6))
    return max(evidence_steps, min(EXAMINED_STEPS, affordable, total_steps or EXAMINED_STEPS))

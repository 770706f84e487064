"""The last word: the winner against the untouched command in fresh processes; and what each member of it is worth."""

from __future__ import annotations

import dataclasses

from fulltilt.records.journal import ComparisonRecord, SpeedupInterval
from fulltilt.records.result import AblationResult
from fulltilt.search.climb import comparison_key
from fulltilt.search.laboratory import Laboratory
from fulltilt.search.pairs import Challenge
from fulltilt.search.processes import Choices
from fulltilt.search.progress import Progress
from fulltilt.search.verdicts import Judge

CONFIRMING_PAIRS = 3
_BLOCKS_OF_A_CONFIRMATION = 10


def confirm(recipe: Choices, *, laboratory: Laboratory, judge: Judge) -> ComparisonRecord:
    """Fresh pairs of (untouched, recipe), start to end."""
    laboratory.release()
    judge.prepare(recipe)
    pairs = CONFIRMING_PAIRS if laboratory.total_steps is None else 2 * CONFIRMING_PAIRS
    record = laboratory.compare(
        Challenge(key=comparison_key("confirm", (), recipe), a=(), b=recipe, max_pairs=pairs, fresh=True, judge=judge)
    )
    laboratory.release()
    return record


def confirmation_seconds(laboratory: Laboratory) -> float:
    """What `confirm` will take, roughly: for holding back that much of the budget."""
    pace = laboratory.pace
    start = laboratory.seconds_to_ready + pace.warmup_steps * laboratory.step_seconds
    blocks = 2 * min(pace.max_blocks, _BLOCKS_OF_A_CONFIRMATION) * pace.block_steps * laboratory.step_seconds
    return CONFIRMING_PAIRS * (2 * start + blocks) * 1.15


def ablate(
    recipe: Choices, *, laboratory: Laboratory, progress: Progress, reserve_seconds: float
) -> tuple[AblationResult, ...]:
    """The recipe against itself without each member. The living incumbent is the recipe."""
    if len(recipe) < 2:
        return ()
    results = []
    for member in recipe:
        if laboratory.budget.remaining <= reserve_seconds + laboratory.comparison_seconds:
            results.append(AblationResult(name=member.name, contribution=None, note="the budget was spent"))
            continue
        progress.stage(f"ablation: the recipe without {member.name}")
        without = tuple(choice for choice in recipe if choice != member)
        record = laboratory.compare(Challenge(key=comparison_key("ablate", recipe, without), a=recipe, b=without))
        laboratory.dismiss()
        contribution = inverse(record.speedup) if record.speedup is not None else None
        results.append(
            AblationResult(name=member.name, contribution=contribution, note=_note(contribution, record.failure))
        )
    return tuple(results)


def members_that_hurt(ablation: tuple[AblationResult, ...]) -> set[str]:
    """Members without which the recipe is certainly faster."""
    return {result.name for result in ablation if result.contribution is not None and result.contribution.high < 1.0}


def members_not_seen_again(ablation: tuple[AblationResult, ...], uncertain: frozenset[str], floor: float) -> set[str]:
    """Uncertain members whose gain did not show a second time. What ablation left out, the confirmation tests."""
    return {
        result.name
        for result in ablation
        if result.name in uncertain and result.contribution is not None and result.contribution.median <= 1.0 + floor
    }


def inverse(interval: SpeedupInterval) -> SpeedupInterval:
    """The interval of A against B from that of B against A."""
    return dataclasses.replace(interval, median=1 / interval.median, low=1 / interval.high, high=1 / interval.low)


def _note(contribution: SpeedupInterval | None, failure: str) -> str:
    if contribution is None:
        return failure
    if contribution.low > 1.0:
        return "pays"
    return "hurts" if contribution.high < 1.0 else "no difference that could be told from chance"

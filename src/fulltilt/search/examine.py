"""The recipe's numbers over many steps, alone and with the random numbers of the untouched command.

A trial of the search records few steps, so that many can be tried, and a technique that draws other random numbers is
judged among other draws there, whose noise hides small faults. Both are made good for the one recipe that is left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from fulltilt.records.journal import VerdictRecord
from fulltilt.records.request import TechniqueChoice
from fulltilt.records.words import Role
from fulltilt.search.failures import EnvelopeFailed
from fulltilt.search.laboratory import Laboratory
from fulltilt.search.pace import examined_steps
from fulltilt.search.processes import Choices
from fulltilt.search.verdicts import Judge
from fulltilt.technique import Spec

_NUM_RUNS = 5
"""Baseline, repeat, two for the rounding envelope, and the recipe."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Examination:
    """What came of it."""

    num_steps: int
    recipe: Choices
    """The members that stood it."""
    broken: tuple[tuple[TechniqueChoice, str], ...] = ()
    """Members that did not, and what spoke against them."""
    verdict: VerdictRecord | None = None
    """On `recipe`; None where there was nothing to judge, or no way to."""
    problem: str = ""
    """Why there is no verdict."""


def examine(
    recipe: Choices, *, laboratory: Laboratory, judge: Judge, spec_of: Callable[[str], Spec], own_rounding: float
) -> Examination:
    """Judge `recipe`; as long as its numbers are refused, leave out the member that is to blame, and judge again."""
    num_steps = steps_to_examine(laboratory)
    usual = laboratory.pace.evidence_steps
    if num_steps <= usual and not judge.changes_draws(recipe):
        return Examination(num_steps=usual, recipe=recipe)
    laboratory.release()
    try:
        if num_steps > usual:
            judge = Judge.over(num_steps, laboratory, spec_of, own_rounding=own_rounding)
        return _examine(recipe, judge, num_steps)
    except EnvelopeFailed as error:
        return Examination(num_steps=num_steps, recipe=recipe, problem=str(error))


def steps_to_examine(laboratory: Laboratory) -> int:
    """As many as the budget has time for."""
    return examined_steps(
        laboratory.pace.evidence_steps,
        num_runs=_NUM_RUNS,
        step_seconds=laboratory.step_seconds,
        start_seconds=laboratory.seconds_to_ready,
        budget_seconds=laboratory.budget.seconds,
        total_steps=laboratory.total_steps,
    )


def examination_seconds(laboratory: Laboratory) -> float:
    """What `examine` will take, roughly: for holding back that much of the budget."""
    steps = steps_to_examine(laboratory)
    if steps <= laboratory.pace.evidence_steps:
        return 0.0
    return _NUM_RUNS * (laboratory.seconds_to_ready + steps * laboratory.step_seconds)


def joined(verdict: VerdictRecord | None, examination: Examination | None) -> VerdictRecord | None:
    """The verdict of a comparison with that of the examination, as one."""
    more = examination.verdict if examination is not None else None
    if verdict is None or examination is None or more is None:
        return verdict
    over = f"over {examination.num_steps} steps, "
    return dataclasses.replace(
        verdict,
        kept=verdict.kept and more.kept,
        evidence=(*verdict.evidence, *(over + sentence for sentence in more.evidence)),
        broken=(*verdict.broken, *(over + sentence for sentence in more.broken)),
    )


def _examine(recipe: Choices, judge: Judge, num_steps: int) -> Examination:
    broken: list[tuple[TechniqueChoice, str]] = []
    while recipe:
        verdict, reason = _verdict(recipe, judge)
        if verdict is not None and verdict.kept:
            return Examination(num_steps=num_steps, recipe=recipe, broken=tuple(broken), verdict=verdict)
        member, why = _to_blame(recipe, judge, reason)
        broken.append((member, why))
        recipe = tuple(choice for choice in recipe if choice != member)
    return Examination(num_steps=num_steps, recipe=(), broken=tuple(broken))


def _verdict(recipe: Choices, judge: Judge) -> tuple[VerdictRecord | None, str]:
    """The verdict, and what speaks against the recipe: a run that fails under it does, too.

    Raises:
        EnvelopeFailed: when it cannot be told, because the untouched command failed or the budget ended.
    """
    try:
        verdict = judge.examine(recipe)
    except EnvelopeFailed as error:
        if error.out_of_budget or error.role is not Role.EXAMINED:
            raise
        return None, str(error)
    return verdict, "; ".join(verdict.broken[:2])


def _to_blame(recipe: Choices, judge: Judge, reason: str) -> tuple[TechniqueChoice, str]:
    """The first member that is refused alone; the last one where none is."""
    for member in recipe if len(recipe) > 1 else ():
        verdict, why = _verdict((member,), judge)
        if verdict is None or not verdict.kept:
            return member, why
    return recipe[-1], reason

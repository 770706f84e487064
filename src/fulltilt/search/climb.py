"""Greedy build-up: each candidate is tried on top of the best recipe so far, and stays if it is faster and right."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from fulltilt.measure.holm import holm
from fulltilt.records.codec import to_plain
from fulltilt.records.journal import ComparisonRecord
from fulltilt.records.request import TechniqueChoice
from fulltilt.records.result import TechniqueResult
from fulltilt.records.words import Outcome, TechniqueOutcome
from fulltilt.search.candidates import Candidate
from fulltilt.search.failures import EnvelopeFailed
from fulltilt.search.laboratory import Laboratory
from fulltilt.search.pairs import Challenge
from fulltilt.search.processes import Choices, new_names
from fulltilt.search.progress import Progress
from fulltilt.search.verdicts import Judge


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Climb:
    """Where the build-up arrived."""

    recipe: Choices
    results: tuple[TechniqueResult, ...]
    uncertain: frozenset[str] = frozenset()
    """Members whose gain chance could explain, so many having been timed (Holm): it must show a second time."""


def climb(
    candidates: Sequence[Candidate], *, laboratory: Laboratory, judge: Judge, progress: Progress, reserve_seconds: float
) -> Climb:
    """Try the candidates in order, until the budget is spent up to `reserve_seconds`."""
    recipe: Choices = ()
    results: list[TechniqueResult] = []
    for number, candidate in enumerate(candidates):
        result = _excluded(candidate, recipe) or _unaffordable(laboratory, reserve_seconds)
        if result is None:
            progress.trying(describe(candidate.choice), done=number, total=len(candidates))
            recipe, result = _try(candidate, recipe, laboratory, judge, reserve_seconds)
        result = dataclasses.replace(result, name=candidate.spec.name, options=candidate.choice.options)
        if result.outcome is TechniqueOutcome.KEPT:
            results = [_replaced(earlier, result) for earlier in results]
        results.append(result)
        progress.found(result)
    return Climb(recipe=recipe, results=tuple(results), uncertain=_uncertain(results, alpha=0.05))


def _try(
    candidate: Candidate, recipe: Choices, laboratory: Laboratory, judge: Judge, reserve_seconds: float
) -> tuple[Choices, TechniqueResult]:
    challenger = with_choice(recipe, candidate.choice)
    try:
        judge.prepare(challenger)
    except EnvelopeFailed as error:
        outcome = TechniqueOutcome.UNTRIED if error.out_of_budget else TechniqueOutcome.FAILED
        reason = f"its numbers could not be judged: {error}"
        return recipe, TechniqueResult(name="", options={}, outcome=outcome, reason=reason)
    record = _compare(challenger, recipe, laboratory, judge, reserve_seconds)
    result = to_result(record, floor=laboratory.floor)
    if result.outcome is TechniqueOutcome.KEPT:
        laboratory.adopt()
        return challenger, result
    laboratory.dismiss()
    return recipe, result


def _compare(
    challenger: Choices, recipe: Choices, laboratory: Laboratory, judge: Judge, reserve_seconds: float
) -> ComparisonRecord:
    challenge = Challenge(
        key=comparison_key("climb", recipe, challenger),
        a=recipe,
        b=challenger,
        max_pairs=6 if laboratory.total_steps or laboratory.one_at_a_time else 3,
        judge=judge,
        reserve_seconds=reserve_seconds,
    )
    record = laboratory.compare(challenge)
    if record.failure_outcome is Outcome.OUT_OF_MEMORY and not record.in_turn:
        laboratory.run_one_at_a_time()  # it may fit where the incumbent is not in memory beside it
        record = laboratory.compare(dataclasses.replace(challenge, key=f"{challenge.key} one at a time"))
    return record


def _replaced(earlier: TechniqueResult, by: TechniqueResult) -> TechniqueResult:
    """An earlier setting of the same technique has lost its place."""
    if earlier.name != by.name or earlier.outcome is not TechniqueOutcome.KEPT:
        return earlier
    return dataclasses.replace(earlier, outcome=TechniqueOutcome.NO_GAIN, reason="replaced by a faster setting of it")


def to_result(record: ComparisonRecord, *, floor: float) -> TechniqueResult:
    """What a comparison says of the technique that B has more than A; name and options are filled in by the caller."""
    outcome, reason = _outcome(record, floor)
    return TechniqueResult(
        name="", options={}, outcome=outcome, reason=reason, speedup=record.speedup, verdict=record.verdict
    )


def _outcome(record: ComparisonRecord, floor: float) -> tuple[TechniqueOutcome, str]:
    if record.no_effect:
        return TechniqueOutcome.NO_EFFECT, record.no_effect
    if record.failure_outcome is Outcome.OUT_OF_BUDGET:
        return TechniqueOutcome.UNTRIED, record.failure
    if record.failure_outcome is Outcome.NOT_FINITE:
        return TechniqueOutcome.BROKE_NUMERICS, record.failure
    if record.failure:
        return TechniqueOutcome.FAILED, record.failure
    if record.verdict is not None and not record.verdict.kept:
        return TechniqueOutcome.BROKE_NUMERICS, "; ".join(record.verdict.broken[:2])
    assert record.speedup is not None
    new = [text for name, text in record.details.items() if name in new_names(record.a, record.b)]
    detail = "; ".join(new)
    if record.speedup.low > 1.0 and record.speedup.median > 1.0 + floor:
        return TechniqueOutcome.KEPT, detail
    if record.speedup.high < 1.0:
        return TechniqueOutcome.NO_GAIN, f"slower ({detail})" if detail else "slower"
    return TechniqueOutcome.NO_GAIN, f"no difference that could be told from chance ({detail})"


def _uncertain(results: Sequence[TechniqueResult], *, alpha: float) -> frozenset[str]:
    """Many were tried, so some win by luck: members that do not survive Holm's correction over all that were timed."""
    timed = {
        str(index): result.speedup.p_value
        for index, result in enumerate(results)
        if result.speedup is not None and result.outcome in (TechniqueOutcome.KEPT, TechniqueOutcome.NO_GAIN)
    }
    survives = holm(timed, alpha)
    return frozenset(
        result.name
        for index, result in enumerate(results)
        if result.outcome is TechniqueOutcome.KEPT and not survives[str(index)]
    )


def _excluded(candidate: Candidate, recipe: Choices) -> TechniqueResult | None:
    for choice in recipe:
        if choice.name in candidate.spec.conflicts:
            return TechniqueResult(
                name="",
                options={},
                outcome=TechniqueOutcome.UNTRIED,
                reason=f"excluded by {choice.name}, which is in the recipe",
            )
    return None


def _unaffordable(laboratory: Laboratory, reserve_seconds: float) -> TechniqueResult | None:
    if laboratory.budget.remaining > reserve_seconds + laboratory.comparison_seconds:
        return None
    return TechniqueResult(
        name="", options={}, outcome=TechniqueOutcome.UNTRIED, reason="the budget was spent; give --budget more"
    )


def with_choice(recipe: Choices, choice: TechniqueChoice) -> Choices:
    """The recipe with `choice`, in the place of another setting of the same technique where there is one."""
    return (*(member for member in recipe if member.name != choice.name), choice)


def comparison_key(purpose: str, a: Choices, b: Choices) -> str:
    """Identity of a question, for the journal."""
    return json.dumps([purpose, to_plain(a), to_plain(b)], sort_keys=True)


def describe(choice: TechniqueChoice) -> str:
    """A choice to read: "precision(dtype=bfloat16)"."""
    options = ", ".join(f"{key}={value}" for key, value in choice.options.items())
    return f"{choice.name}({options})" if options else choice.name

"""The phrases that all reports of a long check share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fulltilt.measure.equivalence import LEAST_MARGIN, REPRODUCIBILITY_LIMIT
from fulltilt.measure.long_check import difference_words, margin_words
from fulltilt.records.long_run import Judgement, LongCheckResult, LongCheckRun, SeriesResult
from fulltilt.records.words import Outcome
from fulltilt.report.facts import Fact
from fulltilt.report.words import count_words, recipe_words
from fulltilt.units import format_seconds

HEADLINES = {
    Judgement.EQUIVALENT: "Equivalent",
    Judgement.DIFFERENT: "Different",
    Judgement.UNDECIDED: "Undecided",
}
_SOURCES = {"loss": "loss of training", "evaluation": "evaluation", "output": "the command's output"}


@dataclass(frozen=True, kw_only=True, slots=True)
class SeriesRow:
    """One judged number, to read."""

    name: str
    source: str
    judgement: str
    plain: str
    """Mean of the runs as it is."""
    under_recipe: str
    difference: str
    margin: str
    power: str
    reason: str


def long_headline(result: LongCheckResult) -> str:
    """ "Equivalent over 4 pairs of runs of 2000 steps"."""
    pairs = count_words(sum(run.arm == "b" for run in result.runs), "pair")
    steps = count_words(max((run.num_steps for run in result.runs), default=0), "step")
    return f"{HEADLINES[result.judgement]}, by {pairs} of runs of {steps}"


def series_rows(series: Sequence[SeriesResult]) -> list[SeriesRow]:
    """All judged numbers, those that decide first."""
    ordered = sorted(series, key=lambda result: not result.decisive)
    return [_row(result) for result in ordered]


def _row(result: SeriesResult) -> SeriesRow:
    found = result.equivalence
    return SeriesRow(
        name=result.name,
        source=_SOURCES.get(result.source, result.source),
        judgement=result.judgement.value
        if result.decisive or result.judgement is Judgement.DIFFERENT
        else "for information",
        plain=f"{found.mean_a:.5g}" if found is not None else "",
        under_recipe=f"{found.mean_b:.5g}" if found is not None else "",
        difference=difference_words(found) if found is not None else "not compared",
        margin=margin_words(found) if found is not None else "",
        power=f"{100 * found.power:.0f} %" if found is not None else "",
        reason=result.reason,
    )


def run_words(run: LongCheckRun) -> tuple[str, str, str, str, str]:
    """Which, seed, steps, time, end."""
    end = "" if run.outcome in (Outcome.FINISHED, Outcome.ENDED) else run.outcome.value.replace("_", " ")
    loss = f"loss {run.final_loss:.5g}" if run.final_loss is not None else "no loss"
    return (
        "as it is" if run.arm == "a" else "under the recipe",
        str(run.seed),
        str(run.num_steps),
        format_seconds(run.wall_seconds),
        "; ".join(filter(None, [end, run.message, loss])),
    )


def margin_rule(result: LongCheckResult) -> str:
    """How the margin came to be, in a sentence."""
    if result.margin_asked is not None:
        return f"The margin was given: {100 * result.margin_asked:g} % of each number."
    return (
        f"The margin of each number is {100 * LEAST_MARGIN:g} % of it, or {REPRODUCIBILITY_LIMIT} standard deviations "
        "between seeds where that is more (as far as two seeds lie apart in 95 % of cases; the lower 95 % bound of it)."
    )


def how_judged(result: LongCheckResult) -> str:
    """The test, in a sentence."""
    return (
        "Equivalence is two one-sided t tests at 5 % on differences of runs with the same seed: the 90 % interval must "
        "lie within the margin, for every number that decides. "
        "A difference is a t test at 5 %, corrected for all numbers (Holm)."
    )


def long_facts(result: LongCheckResult) -> list[Fact]:
    """How it was done."""
    sources = dict.fromkeys(_SOURCES.get(series.source, series.source) for series in result.series)
    applied = "; ".join(f"{record.name}: {record.detail}" for record in result.applied)
    facts = [
        ("Recipe", recipe_words(result.recipe)),
        ("It did", applied),
        ("Steps asked", str(result.num_steps_asked)),
        ("Runs asked", f"{result.num_runs_asked} as it is, {result.num_runs_asked} under the recipe"),
        ("Judged by", ", ".join(sources)),
        ("All runs took", format_seconds(result.wall_seconds)),
    ]
    return [(label, value) for label, value in facts if value]

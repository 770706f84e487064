"""The report as one HTML page that needs nothing else: style, script and charts are in it, and it loads nothing."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from fulltilt.records.journal import ComparisonRecord, TrialRecord, VerdictRecord
from fulltilt.records.result import AblationResult, TechniqueResult, TuneResult
from fulltilt.records.words import Outcome, TechniqueOutcome
from fulltilt.report import comparisons as compared
from fulltilt.report.block_chart import block_chart
from fulltilt.report.facts import floor_sentence, machine_facts, phase_shares, site_facts, tune_facts
from fulltilt.report.phase_chart import phase_chart
from fulltilt.report.printable import command_line, printable, shorten
from fulltilt.report.recipe_text import recipe_text
from fulltilt.report.speed_chart import speed_axis, speed_row, speed_scale
from fulltilt.report.svg import RatioScale, bar
from fulltilt.report.words import (
    NUMERICS_WORDS,
    break_even_words,
    choice_words,
    count_words,
    headline,
    in_reading_order,
    interval_words,
    is_measured,
    options_words,
    outcome_words,
    recipe_step_seconds,
    recipe_words,
    speed_words,
    tally_words,
)
from fulltilt.units import format_seconds

_MOST_CHARACTERS = 1500
"""Of a message or a reason: a page is no log file."""
_MOST_TRIALS = 200
_MOST_CHARTS = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """A line of the tables with a speed-up."""

    name: str
    options: str
    outcome: str
    tone: str
    speed: str
    chart: Markup
    numbers: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sentence:
    """A piece of evidence."""

    text: str
    broken: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _StepBar:
    """The time of a step, as it is or under the recipe."""

    label: str
    words: str
    chart: Markup


def render_html(result: TuneResult, comparisons: Sequence[ComparisonRecord]) -> str:
    """The page, as text that encodes as UTF-8.

    Args:
        comparisons: those of the journal; each with blocks gets a chart.
    """
    return page_template("page.html.j2").render(
        **_claims(result),
        **_tables(result),
        **_charts(result, comparisons),
        facts=[*machine_facts(result.machine), *site_facts(result.site), *tune_facts(result)],
        trials=[_trial_row(trial) for trial in result.trials[:_MOST_TRIALS]],
        num_trials=len(result.trials),
        trials_words=_trials_words(result.trials),
        warnings=result.warnings,
        version=version(),
    )


def _claims(result: TuneResult) -> dict[str, Any]:
    return {
        "headline": headline(result),
        "result": result,
        "tone": _tone_of_result(result),
        "command": command_line(result.command),
        "recipe": recipe_text(result) if result.recipe.techniques else "",
        "recipe_words": recipe_words(result.recipe.techniques),
        "basis": _basis(result),
        "tally": tally_words(result.techniques),
        "floor": floor_sentence(result.aa_floor),
        "step_bars": _step_bars(result),
        "break_even": break_even_words(result),
    }


def _tables(result: TuneResult) -> dict[str, Any]:
    scale = speed_scale(
        [
            *(technique.speedup for technique in result.techniques),
            *(ablation.contribution for ablation in result.ablation),
        ],
        result.aa_floor,
    )
    techniques = in_reading_order(result.techniques)
    return {
        "axis": speed_axis(scale),
        "techniques": [_technique_row(technique, scale, result.aa_floor) for technique in techniques],
        "ablation": [_ablation_row(ablation, scale, result.aa_floor) for ablation in result.ablation],
        "evidence": _sentences(result.verdict),
        "numerics_words": NUMERICS_WORDS[result.verdict.numerics],
        "broken": [
            (choice_words(technique.name, technique.options), _sentences(technique.verdict))
            for technique in techniques
            if technique.verdict is not None and not technique.verdict.kept
        ],
    }


def _charts(result: TuneResult, comparisons: Sequence[ComparisonRecord]) -> dict[str, Any]:
    ordered = compared.in_reading_order(comparisons)
    return {
        "phases": phase_shares(result.phases) if result.phases is not None else (),
        "phase_chart": phase_chart(result.phases) if result.phases is not None else "",
        "comparisons": [
            {
                "title": compared.title(comparison),
                "confirmation": compared.purpose(comparison) == "confirm",
                "outcome": compared.outcome(comparison, result.aa_floor),
                "chart": block_chart(comparison, floor=result.aa_floor),
            }
            for comparison in ordered[:_MOST_CHARTS]
        ],
        "num_more_comparisons": max(0, len(ordered) - _MOST_CHARTS),
    }


def _tone_of_result(result: TuneResult) -> str:
    if not result.recipe.techniques:
        return "calm"
    return "good" if result.verdict.kept and result.speedup.low > 1.0 else "bad"


def _basis(result: TuneResult) -> str:
    speedup = result.speedup
    if not result.recipe.techniques or not is_measured(speedup):
        return ""
    pairs = count_words(speedup.num_pairs, "fresh pair" if result.confirmed else "pair")
    return f"{100 * speedup.confidence:.0f} % interval from {count_words(speedup.num_blocks, 'block')} in {pairs}"


def _step_bars(result: TuneResult) -> list[_StepBar]:
    before, after = result.baseline_step_seconds, recipe_step_seconds(result)
    if after is None:
        return []
    longest = max(before, after)
    return [
        _step_bar("as it is", before, longest, "before"),
        _step_bar("with the recipe", after, longest, "after"),
    ]


def _step_bar(label: str, seconds: float, longest: float, class_: str) -> _StepBar:
    words = format_seconds(seconds)
    return _StepBar(
        label=label, words=words, chart=bar(seconds / longest, label=f"{words} a step {label}", class_=class_)
    )


def _technique_row(technique: TechniqueResult, scale: RatioScale, floor: float) -> _Row:
    speedup = technique.speedup if technique.outcome is not TechniqueOutcome.NO_EFFECT else None
    return _Row(
        name=technique.name,
        options=_short(options_words(technique.options)),
        outcome=outcome_words(technique, floor),
        tone=technique.outcome.value.replace("_", "-"),
        speed=speed_words(technique, floor),
        chart=speed_row(speedup, scale, floor) if speedup is not None else Markup(""),
        numbers=_numbers_words(technique.verdict),
        reason=_short(technique.reason),
    )


def _ablation_row(ablation: AblationResult, scale: RatioScale, floor: float) -> _Row:
    gain = ablation.contribution
    return _Row(
        name=ablation.name,
        options="",
        outcome="",
        tone="",
        speed=interval_words(gain, floor),
        chart=speed_row(gain, scale, floor) if gain is not None else Markup(""),
        numbers="",
        reason=_short(ablation.note),
    )


def _numbers_words(verdict: VerdictRecord | None) -> str:
    if verdict is None:
        return "not judged"
    return f"{'kept' if verdict.kept else 'broken'} ({verdict.numerics.value})"


def _sentences(verdict: VerdictRecord) -> list[_Sentence]:
    """All evidence, what speaks against it first."""
    broken = [_Sentence(text=_short(text), broken=True) for text in verdict.broken]
    return broken + [
        _Sentence(text=_short(text), broken=False) for text in verdict.evidence if text not in verdict.broken
    ]


def _trial_row(trial: TrialRecord) -> dict[str, str]:
    return {
        "trial": trial.trial,
        "role": trial.role.value,
        "techniques": recipe_words(trial.techniques),
        "outcome": trial.outcome.value.replace("_", " "),
        "tone": "" if trial.outcome in (Outcome.FINISHED, Outcome.ENDED) else "failed",
        "steps": str(trial.num_steps),
        "wall": format_seconds(trial.wall_seconds),
        "startup": format_seconds(trial.startup_seconds) if trial.startup_seconds is not None else "not measured",
        "message": _short(trial.message),
    }


def _trials_words(trials: Sequence[TrialRecord]) -> str:
    failed = sum(trial.outcome not in (Outcome.FINISHED, Outcome.ENDED) for trial in trials)
    words = count_words(len(trials), "trial")
    return f"{words}, {failed} of which failed" if failed else words


def version() -> str:
    try:
        return importlib.metadata.version("fulltilt")
    except importlib.metadata.PackageNotFoundError:  # run from a source folder
        return ""


def _short(text: str) -> str:
    return shorten(printable(text).strip(), _MOST_CHARACTERS)


def page_template(name: str) -> Template:
    """A page's template, with style and script to put in."""
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("fulltilt.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = _source(environment, "page.css"), _source(environment, "page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals |= {"style": style, "script": script, "script_digest": digest}
    return environment


def _source(environment: Environment, name: str) -> Markup:
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0].strip())


def _finalize(value: Any) -> Any:
    """What the template prints, made printable; markup of our own is already."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value

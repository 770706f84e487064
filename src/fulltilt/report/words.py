"""The phrases that all reports share: what came out, how sure it is, and what became of each technique."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fulltilt.records.journal import SpeedupInterval
from fulltilt.records.request import TechniqueChoice
from fulltilt.records.result import ProtectionRecord, TechniqueResult, TuneResult
from fulltilt.records.words import Numerics, Protection, TechniqueOutcome
from fulltilt.report.printable import one_line
from fulltilt.units import format_seconds

OUTCOME_WORDS = {
    TechniqueOutcome.KEPT: "kept",
    TechniqueOutcome.NO_GAIN: "no gain",
    TechniqueOutcome.NO_EFFECT: "no effect",
    TechniqueOutcome.BROKE_NUMERICS: "numbers broken",
    TechniqueOutcome.FAILED: "failed",
    TechniqueOutcome.REFUSED: "refused",
    TechniqueOutcome.UNTRIED: "not tried",
}

NUMERICS_WORDS = {
    Numerics.EXACT: "the same numbers, within the run's own noise",
    Numerics.ROUNDING: "the same computation, rounded differently",
    Numerics.LOSSY: "another computation, judged by its loss curve",
}

_MOST_FOLDERS = 3
"""That are named in a sentence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Headline:
    """What came out, for the top of a report."""

    title: str
    """"1.62x faster", "Nothing helps here"."""
    interval: str = ""
    """"[1.55, 1.70]", when there is a recipe."""
    numbers: str = ""
    """"numbers kept (ROUNDING)", when there is a recipe."""
    caveat: str = ""
    """What speaks against relying on it yet."""
    why: str = ""
    """The reason, when there is no recipe."""

    def __str__(self) -> str:
        claim = f"{self.title} {self.interval}".strip()
        text = ", ".join(filter(None, [claim, self.numbers, self.caveat]))
        return f"{text}: {self.why}" if self.why else text


def headline(result: TuneResult) -> Headline:
    """The one line that a reader takes away."""
    if not result.recipe.techniques:
        return Headline(title=_title_without_recipe(result), why=_why_nothing(result))
    kept = "kept" if result.verdict.kept else "broken"
    return Headline(
        title=_title(result.speedup, result.aa_floor),
        interval=bounds_words(result.speedup) if is_measured(result.speedup) else "",
        numbers=f"numbers {kept} ({result.verdict.numerics.value})",
        caveat="" if result.confirmed else "not confirmed in fresh processes",
    )


def interval_words(speedup: SpeedupInterval | None, floor: float = 0.0) -> str:
    """ "1.62x [1.55, 1.70]"; "no difference [0.98, 1.03]" where that is so; "not measured" without blocks.

    Args:
        floor: relative difference between identical runs, under which nothing is claimed.
    """
    if speedup is None or not is_measured(speedup):
        return "not measured"
    if not is_different(speedup, floor):
        return f"no difference {bounds_words(speedup)}"
    return f"{ratio_words(speedup.median)} {bounds_words(speedup)}"


def speed_words(technique: TechniqueResult, floor: float) -> str:
    """The speed-up of a technique; "no effect" for one that did nothing, whatever the clock said."""
    if technique.outcome is TechniqueOutcome.NO_EFFECT:
        return "no effect"
    return interval_words(technique.speedup, floor)


def outcome_words(technique: TechniqueResult, floor: float) -> str:
    """ "kept", "slower", "no gain", ...: what became of a technique."""
    if technique.outcome is TechniqueOutcome.NO_GAIN and is_slower(technique.speedup, floor):
        return "slower"
    return OUTCOME_WORDS[technique.outcome]


def is_measured(speedup: SpeedupInterval) -> bool:
    """Does it rest on any block at all?"""
    bounds = (speedup.median, speedup.low, speedup.high)
    return speedup.num_blocks > 0 and all(math.isfinite(bound) and bound > 0 for bound in bounds)


def is_different(speedup: SpeedupInterval, floor: float) -> bool:
    """Is it a difference: the interval leaves 1 out, and the median is beyond the floor?"""
    beyond_chance = speedup.low > 1.0 or speedup.high < 1.0
    return beyond_chance and abs(math.log(speedup.median)) > math.log1p(floor)


def is_slower(speedup: SpeedupInterval | None, floor: float) -> bool:
    """Is it certainly slower?"""
    return speedup is not None and is_measured(speedup) and speedup.high < 1.0 and is_different(speedup, floor)


def ratio_words(ratio: float) -> str:
    """ "1.62x"; a third decimal where two would claim that nothing happened."""
    return f"{ratio:.{_decimals(ratio)}f}x"


def bounds_words(speedup: SpeedupInterval) -> str:
    """ "[1.55, 1.70]", as precise as the median is shown."""
    decimals = _decimals(speedup.median)
    return f"[{speedup.low:.{decimals}f}, {speedup.high:.{decimals}f}]"


def choice_words(name: str, options: Mapping[str, Any]) -> str:
    """ "precision(dtype=bfloat16)"."""
    settings = options_words(options)
    return one_line(f"{name}({settings})" if settings else name)


def options_words(options: Mapping[str, Any]) -> str:
    """ "dtype=bfloat16, scope=regions"."""
    return one_line(", ".join(f"{key}={value}" for key, value in options.items()))


def recipe_words(techniques: Iterable[TechniqueChoice]) -> str:
    """ "precision(dtype=bfloat16) + fused_optimizer"; "the command as it is" for an empty recipe."""
    return " + ".join(choice_words(choice.name, choice.options) for choice in techniques) or "the command as it is"


def count_words(number: int, thing: str) -> str:
    """ "1 trial", "3 trials"."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def in_reading_order(techniques: Iterable[TechniqueResult]) -> list[TechniqueResult]:
    """Kept ones first, what was tried next, what was not tried last; otherwise as they came."""
    rank = {outcome: index for index, outcome in enumerate(OUTCOME_WORDS)}
    rank[TechniqueOutcome.NO_EFFECT] = rank[TechniqueOutcome.NO_GAIN]
    return sorted(techniques, key=lambda technique: rank[technique.outcome])


def break_even_words(result: TuneResult) -> str:
    """A sentence: from which step on the recipe has paid for its slower start."""
    if not result.recipe.techniques:
        return "Nothing is changed, so there is nothing to pay back."
    steps = result.break_even_steps
    if steps is None or steps <= 0:
        return "No slower start was measured: there is nothing to pay back."
    text = f"The recipe starts more slowly and has paid for that after {count_words(steps, 'step')}"
    step_seconds = recipe_step_seconds(result)
    return f"{text}, about {format_seconds(steps * step_seconds)} of training." if step_seconds else f"{text}."


def recipe_step_seconds(result: TuneResult) -> float | None:
    """Seconds that a step takes under the recipe; None when there is no recipe, or no measurement."""
    if not result.recipe.techniques or not is_measured(result.speedup) or result.baseline_step_seconds <= 0:
        return None
    return result.baseline_step_seconds / result.speedup.median


def protection_words(protection: ProtectionRecord | None) -> str:
    """What kept trials from changing the user's files, and what it does not hold; empty where nobody told."""
    if protection is None:
        return ""
    if protection.means is Protection.REDIRECTED:
        why = f" (no overlay: {one_line(protection.reason)})" if protection.reason else ""
        return (
            "What Python wrote in trials was redirected; programs and native libraries that the command uses could "
            f"have written{why}."
        )
    held = "Trials wrote to an overlay that was thrown away"
    if not protection.redirected:
        return f"{held}."
    some, more = protection.redirected[:_MOST_FOLDERS], len(protection.redirected) - _MOST_FOLDERS
    named = one_line(", ".join(some)) + (f" and {more} more" if more > 0 else "")
    return f"{held}; only Python's writes were redirected in {named}, which can have none."


def tally_words(techniques: Iterable[TechniqueResult]) -> str:
    """ "2 kept, 3 no gain, 1 refused": what became of them all; empty when there are none."""
    counts = Counter(technique.outcome for technique in techniques)
    return ", ".join(f"{counts[outcome]} {words}" for outcome, words in OUTCOME_WORDS.items() if counts[outcome])


def _title(speedup: SpeedupInterval, floor: float) -> str:
    if not is_measured(speedup):
        return "Recipe not measured"
    if not is_different(speedup, floor):
        return "No difference"
    return f"{ratio_words(speedup.median)} {'faster' if speedup.median > 1 else '(slower)'}"


def _title_without_recipe(result: TuneResult) -> str:
    outcomes = {technique.outcome for technique in result.techniques}
    if not outcomes:
        return "Nothing was tried"
    if outcomes == {TechniqueOutcome.UNTRIED}:
        return "Nothing could be tried"
    return "Nothing helps here" if result.finished else "No recipe so far"


def _why_nothing(result: TuneResult) -> str:
    return one_line(result.summary) or tally_words(result.techniques) or "no technique was looked at."


def _decimals(ratio: float) -> int:
    return 3 if f"{ratio:.2f}" == "1.00" else 2

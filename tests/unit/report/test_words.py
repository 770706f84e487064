import dataclasses
from collections.abc import Callable

import pytest

from fulltilt.records.journal import SpeedupInterval
from fulltilt.records.result import ProtectionRecord, TechniqueResult, TuneResult
from fulltilt.records.words import Numerics, Protection, TechniqueOutcome
from fulltilt.report.words import (
    NUMERICS_WORDS,
    OUTCOME_WORDS,
    break_even_words,
    choice_words,
    headline,
    in_reading_order,
    interval_words,
    outcome_words,
    protection_words,
    recipe_step_seconds,
    speed_words,
    tally_words,
)

Speedup = Callable[..., SpeedupInterval]


def technique(outcome: TechniqueOutcome, speedup: SpeedupInterval | None = None) -> TechniqueResult:
    return TechniqueResult(name="t", options={}, outcome=outcome, reason="", speedup=speedup)


def test_a_gain_is_told_with_its_interval(speedup: Speedup) -> None:
    assert interval_words(speedup(1.62, 0.0, low=1.55, high=1.70)) == "1.62x [1.55, 1.70]"


@pytest.mark.parametrize(
    ("median", "low", "high", "floor"),
    [(1.02, 0.98, 1.06, 0.0), (1.01, 1.005, 1.015, 0.02), (0.99, 0.985, 0.995, 0.02)],
)
def test_an_interval_around_one_or_within_the_floor_is_no_difference(
    speedup: Speedup, median: float, low: float, high: float, floor: float
) -> None:
    assert interval_words(speedup(median, 0.0, low=low, high=high), floor).startswith("no difference [")


def test_a_small_but_certain_gain_gets_a_third_decimal(speedup: Speedup) -> None:
    assert interval_words(speedup(1.004, 0.0, low=1.002, high=1.006)) == "1.004x [1.002, 1.006]"


@pytest.mark.parametrize("changes", [{"num_blocks": 0}, {"high": float("nan")}, {"low": 0.0}])
def test_what_rests_on_nothing_was_not_measured(speedup: Speedup, changes: dict[str, float]) -> None:
    assert interval_words(speedup(1.3, **changes)) == "not measured"
    assert interval_words(None) == "not measured"


def test_no_effect_is_never_a_number(speedup: Speedup) -> None:
    for median in (1.0, 1.3):
        assert speed_words(technique(TechniqueOutcome.NO_EFFECT, speedup(median, 0.01)), 0.0) == "no effect"


def test_a_certain_loss_is_called_slower(speedup: Speedup) -> None:
    assert outcome_words(technique(TechniqueOutcome.NO_GAIN, speedup(0.8)), 0.01) == "slower"
    assert outcome_words(technique(TechniqueOutcome.NO_GAIN, speedup(0.995, 0.01)), 0.0) == "no gain"
    assert outcome_words(technique(TechniqueOutcome.NO_GAIN), 0.0) == "no gain"


def test_every_word_of_the_records_has_its_phrase() -> None:
    assert set(OUTCOME_WORDS) == set(TechniqueOutcome)
    assert set(NUMERICS_WORDS) == set(Numerics)


def test_the_headline_of_a_gain(result: TuneResult) -> None:
    assert str(headline(result)) == "1.62x faster [1.55, 1.70], numbers kept (ROUNDING)"


def test_the_headline_says_what_speaks_against_a_recipe(result: TuneResult, speedup: Speedup) -> None:
    broken = dataclasses.replace(result.verdict, kept=False)
    doubtful = dataclasses.replace(result, confirmed=False, verdict=broken)
    assert str(headline(doubtful)).endswith("numbers broken (ROUNDING), not confirmed in fresh processes")
    assert headline(dataclasses.replace(result, speedup=speedup(0.8))).title == "0.80x (slower)"
    assert headline(dataclasses.replace(result, speedup=speedup(1.01))).title == "No difference"
    assert headline(dataclasses.replace(result, speedup=speedup(1.0, num_blocks=0))).title == "Recipe not measured"


def test_the_headline_without_a_recipe_says_why(nothing_helps: TuneResult) -> None:
    assert str(headline(nothing_helps)) == f"Nothing helps here: {nothing_helps.summary}"
    assert headline(dataclasses.replace(nothing_helps, summary="")).why == "6 no gain, 1 no effect, 1 refused"
    assert headline(dataclasses.replace(nothing_helps, finished=False)).title == "No recipe so far"
    untried = (technique(TechniqueOutcome.UNTRIED),)
    assert headline(dataclasses.replace(nothing_helps, techniques=untried)).title == "Nothing could be tried"


def test_the_headline_of_an_interrupted_tune(interrupted: TuneResult) -> None:
    assert headline(interrupted).title == "Nothing was tried"


def test_break_even_is_told_in_steps_and_time(result: TuneResult) -> None:
    assert break_even_words(result) == (
        "The recipe starts more slowly and has paid for that after 37 steps, about 4.17 s of training."
    )
    assert "after 1 step, about" in break_even_words(dataclasses.replace(result, break_even_steps=1))
    assert break_even_words(dataclasses.replace(result, break_even_steps=None)).startswith("No slower start")


def test_break_even_without_a_recipe(nothing_helps: TuneResult) -> None:
    assert break_even_words(nothing_helps).startswith("Nothing is changed")
    assert recipe_step_seconds(nothing_helps) is None


def test_kept_techniques_are_read_first(result: TuneResult) -> None:
    shuffled = list(reversed(result.techniques))
    names = [tried.name for tried in in_reading_order(shuffled)]
    assert names[:2] == ["fused_optimizer", "precision"]
    assert names[-1] == "cudnn_benchmark"


def test_the_tally_counts_each_outcome(result: TuneResult) -> None:
    assert tally_words(result.techniques) == "2 kept, 4 no gain, 1 no effect, 1 refused"
    assert tally_words(()) == ""


def test_a_choice_is_written_with_its_options() -> None:
    assert choice_words("precision", {"dtype": "bfloat16", "scope": "all"}) == "precision(dtype=bfloat16, scope=all)"
    assert choice_words("fused_optimizer", {}) == "fused_optimizer"


def test_the_protection_of_files_is_told_with_what_it_does_not_hold() -> None:
    overlay = ProtectionRecord(means=Protection.OVERLAY)
    assert protection_words(overlay) == "Trials wrote to an overlay that was thrown away."
    partly = dataclasses.replace(overlay, redirected=("/data/team", "/a", "/b", "/c", "/d"))
    assert "redirected in /data/team, /a, /b and 2 more, which can have none" in protection_words(partly)
    redirected = ProtectionRecord(means=Protection.REDIRECTED, reason="making a user namespace: Not permitted")
    assert "native libraries that the command uses could have written" in protection_words(redirected)
    assert "(no overlay: making a user namespace: Not permitted)" in protection_words(redirected)


def test_results_that_do_not_tell_of_protection_claim_none() -> None:
    assert protection_words(None) == ""

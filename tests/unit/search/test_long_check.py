"""The long check over a mock executor: exact curves, no training."""

import dataclasses
import math
import random

import pytest

from fulltilt.errors import CommandFailed
from fulltilt.hardware.machine import this_machine
from fulltilt.records.long_run import Judgement
from fulltilt.records.request import TechniqueChoice
from fulltilt.records.words import Outcome
from fulltilt.search.budget import Budget
from fulltilt.search.long_check import NUDGES, LongCheck, LongCheckPlan
from fulltilt.search.progress import Silent
from fulltilt.trials.contract import Ended
from fulltilt.trials.journal import Journal
from fulltilt.trials.mock import MockExecutor, MockScript

RECIPE = (TechniqueChoice(name="fused"),)


def descent(request, *, seed_sd=0.003, own_sd=0.0005, side=0, shift=0.0, from_step=0):
    """A loss that falls from 2 to 1, by as much as seeds and sides say; shifted from a step on."""
    seed = random.Random(request.reseed)
    own = random.Random(f"{request.reseed} {side}")
    level = 1 + seed.gauss(0, seed_sd) + own.gauss(0, own_sd)
    noise = [seed.gauss(0, 0.05) for _ in range(request.num_steps)]
    return [
        (level + math.exp(-4 * step / request.num_steps)) * (1 + shift * (step >= from_step)) + noise[step]
        for step in range(request.num_steps)
    ]


def script(*, of_recipe=None, **changes):
    def curve(names, request):
        if not names:
            return descent(request)
        return of_recipe(request) if of_recipe is not None else descent(request, side=1)

    return MockScript(**{"curve": curve, "step_seconds": 0.01, **changes})


@pytest.fixture
def check(tmp_path):
    """check(script, runs=...) -> (result, executor); a second call goes on in the same folder."""

    def run(script, *, recipe=RECIPE, steps=200, runs=4, margin=None, budget=math.inf, on_start=None):
        executor = MockExecutor(script, on_start=on_start, directory=tmp_path / "trials")
        long_check = LongCheck(
            LongCheckPlan(recipe=recipe, num_steps=steps, num_runs=runs, margin=margin),
            command=("python", "train.py"),
            machine=this_machine(),
            executor=executor,
            journal=Journal(tmp_path / "journal.jsonl"),
            directory=tmp_path,
            budget=Budget(budget, executor.now),
            progress=Silent(),
        )
        try:
            return long_check.run(), executor
        finally:
            executor.close()

    return run


def test_the_same_training_rounded_differently_is_equivalent(check):
    result, executor = check(script())
    assert result.judgement is Judgement.EQUIVALENT
    assert result.finished
    assert len(executor.started) == 8
    assert [run.arm for run in result.runs] == ["a", "b"] * 4
    decisive = [series for series in result.series if series.decisive]
    assert {series.name for series in decisive} == {"loss, last fifth (steps 161 to 200)", "loss, all steps"}
    assert all(0 < series.equivalence.power <= 1 for series in decisive)


def test_runs_of_one_seed_have_the_same_seed_and_others_have_another(check):
    _, executor = check(script())
    seeds = [(bool(plan.techniques), plan.evidence.reseed) for plan in executor.started]
    plain = [seed for under_recipe, seed in seeds if not under_recipe]
    assert plain == [seed for under_recipe, seed in seeds if under_recipe]
    assert len(set(plain)) == 4


@pytest.mark.parametrize("from_step", [0, 60, 160])
def test_a_loss_that_is_too_high_from_some_step_on_is_different(check, from_step):
    result, _ = check(script(of_recipe=lambda request: descent(request, side=1, shift=0.2, from_step=from_step)))
    assert result.judgement is Judgement.DIFFERENT
    assert "beyond chance" in result.summary


def test_a_fault_that_heals_is_different_too(check):
    def healed(request):
        wrong = descent(request, side=1, shift=0.3)
        return descent(request, side=1)[:40] + wrong[40:80] + descent(request, side=1)[80:]

    result, _ = check(script(of_recipe=healed))
    assert result.judgement is Judgement.DIFFERENT
    by_name = {series.name: series.judgement for series in result.series}
    assert by_name["loss, steps 41 to 80"] is Judgement.DIFFERENT
    assert by_name["loss, last fifth (steps 161 to 200)"] is Judgement.EQUIVALENT


def test_a_small_true_difference_within_a_wide_margin_is_equivalent_and_told(check):
    result, _ = check(script(of_recipe=lambda request: descent(request, side=1, shift=0.004)), margin=0.02)
    assert result.judgement is Judgement.EQUIVALENT
    assert "+0.4" in result.summary
    result, _ = check(script(of_recipe=lambda request: descent(request, side=1, shift=0.004)), margin=0.002)
    assert result.judgement is Judgement.DIFFERENT


def test_noise_that_hides_the_answer_is_undecided_and_says_how_many_runs_it_takes(check):
    noisy = script(of_recipe=lambda request: descent(request, side=1, own_sd=0.02))
    result, _ = check(noisy, margin=0.01)
    assert result.judgement is Judgement.UNDECIDED
    assert "runs each would decide" in result.summary


@pytest.mark.parametrize(
    ("of_recipe", "words"),
    [
        (lambda r: [*descent(r)[:60], math.nan, *descent(r)[61:]], "nan from step 61 on"),
        (lambda r: [*descent(r)[:60], *(math.inf for _ in range(140))], "inf from step 61 on"),
        (lambda r: descent(r)[:80], "ends after 80 steps, without it after 200"),
        (lambda r: [1 + 0.2 * step for step in range(200)], "diverges"),
        (lambda r: [], "ends after 0 steps"),
    ],
)
def test_a_run_that_goes_wrong_is_different_at_once(check, of_recipe, words):
    result, executor = check(script(of_recipe=of_recipe))
    assert result.judgement is Judgement.DIFFERENT
    assert words in result.summary
    assert len(executor.started) == 2


def test_a_recipe_that_crashes_is_different(check):
    ended = Ended(outcome=Outcome.EXCEPTION, message="RuntimeError: bad shape", exit_status=1)
    result, _ = check(script(failures={"fused": ended}))
    assert result.judgement is Judgement.DIFFERENT
    assert "RuntimeError: bad shape" in result.summary


def test_a_command_that_fails_by_itself_is_no_verdict(check):
    ended = Ended(outcome=Outcome.EXCEPTION, message="ValueError: x at t.py:1", exit_status=1)
    with pytest.raises(CommandFailed, match="ValueError: x"):
        check(script(failures={"": ended}))


def test_a_command_without_a_recipe_is_equivalent_to_itself(check):
    result, _ = check(script(), recipe=())
    assert result.judgement is Judgement.EQUIVALENT
    assert "every run is the same" in result.summary


def test_a_recipe_that_did_nothing_is_said_to(check):
    result, _ = check(script(no_effect=frozenset({"fused"})))
    assert any("The recipe did nothing here: fused" in note for note in result.notes)


def test_a_command_that_resists_seeds_is_noticed_and_nudged(check):
    def curve(names, request):
        fixed = dataclasses.replace(request, reseed=0)
        moved = random.Random(request.perturb_seed).gauss(0, 0.001) if request.perturb_relative else 0.0
        return [loss + moved for loss in descent(fixed, side=len(names))]

    result, executor = check(MockScript(curve=curve))
    assert result.judgement is Judgement.EQUIVALENT
    assert any("resists other seeds" in note for note in result.notes)
    assert [plan.evidence.perturb_relative for plan in executor.started] == [0.0] * 3 + [NUDGES[0]] * 6
    again, resumed = check(MockScript(curve=curve))
    assert resumed.started == []
    assert again.series == result.series


def test_a_command_that_nothing_moves_is_said_to_be_the_same_every_time(check):
    fixed = MockScript(curve=lambda names, request: [2.0 - step / 400 for step in range(request.num_steps)])
    result, _ = check(fixed, runs=3)
    assert result.judgement is Judgement.EQUIVALENT
    assert any("whatever the seed" in note for note in result.notes)


def test_finished_runs_are_not_repeated_and_more_can_be_asked_for(check):
    _, first = check(script(), runs=2)
    result, second = check(script(), runs=4)
    assert len(first.started) == len(second.started) == 4
    assert len(result.runs) == 8
    again, third = check(script(), runs=4)
    assert third.started == []
    assert again.series == result.series


def test_other_steps_or_another_recipe_are_other_runs_and_the_plain_ones_serve_again(check):
    check(script(), runs=2)
    _, other_recipe = check(script(), runs=2, recipe=(TechniqueChoice(name="compile"),))
    assert all(plan.techniques for plan in other_recipe.started)
    assert len(other_recipe.started) == 2
    _, other_steps = check(script(), runs=2, steps=100)
    assert len(other_steps.started) == 4


def test_an_interrupted_check_goes_on_where_it_stopped(check):
    started = []

    def interrupt(plan):
        started.append(plan.trial)
        if len(started) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check(script(), on_start=interrupt)
    result, resumed = check(script())
    assert result.judgement is Judgement.EQUIVALENT
    assert [plan.trial for plan in resumed.started] == [started[3], *[p.trial for p in resumed.started[1:]]]
    assert len(resumed.started) == 5


def test_a_budget_that_ends_early_leaves_it_undecided(check):
    result, executor = check(script(step_seconds=1.0), budget=500.0)
    assert result.judgement is Judgement.UNDECIDED
    assert not result.finished
    assert executor.now() <= 500
    assert any("The budget ended" in note for note in result.notes)


def printing(words_of):
    return lambda names, request: "".join(f"{line}\n" for line in words_of(bool(names), request))


def evaluations(under_recipe, request, *, off=0.0):
    dice = random.Random(request.reseed)
    for epoch in range(10):
        seconds = 9.0 - 4 * under_recipe
        value = 0.5 - 0.02 * epoch + dice.gauss(0, 0.001)
        yield f"epoch {epoch} val loss {value + off * under_recipe:.4f} took {seconds:.1f} speed {90 / seconds:.1f}"


def test_evaluations_that_are_printed_are_judged_and_times_are_not(check):
    result, _ = check(script(output=printing(evaluations)))
    assert result.judgement is Judgement.EQUIVALENT
    assert [series.name for series in result.series if series.source == "output"] == [
        'printed "val loss", mean of the last 2'
    ]


def test_a_worse_evaluation_is_different_where_the_losses_are_the_same(check):
    wrong = printing(lambda under, request: evaluations(under, request, off=0.1))
    result, _ = check(script(output=wrong))
    assert result.judgement is Judgement.DIFFERENT
    assert 'printed "val loss"' in result.summary


def test_a_run_that_stops_by_its_own_rule_is_compared_by_its_length_too(check):
    def curve(names, request):
        length = 150 + random.Random(request.reseed).randrange(40)
        return descent(request, side=len(names))[:length]

    result, _ = check(MockScript(curve=curve))
    assert "steps until it stops" in {series.name for series in result.series}
    assert result.judgement is Judgement.EQUIVALENT

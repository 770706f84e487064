"""The whole search over a mock executor: no training, exact step times."""

import dataclasses
import re

import pytest

from fulltilt.errors import CommandFailed, StorageError
from fulltilt.hardware.machine import this_machine
from fulltilt.records.request import TechniqueChoice
from fulltilt.records.words import Numerics, Outcome, Role, TechniqueOutcome
from fulltilt.search.budget import Budget
from fulltilt.search.laboratory import Laboratory
from fulltilt.search.progress import Silent
from fulltilt.search.tune import Tune
from fulltilt.technique import Spec, Stage
from fulltilt.trials.contract import Ended
from fulltilt.trials.journal import Journal
from fulltilt.trials.mock import MockExecutor, MockScript


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    level: int = 1


def spec(name, **changes):
    defaults = {
        "name": name,
        "summary": "",
        "options": Options,
        "stage": Stage.MODEL,
        "numerics": Numerics.ROUNDING,
        "apply": "none:none",
        "candidates": lambda machine, site, phases: (Options(),),
        "rounding": lambda options: 2.0**-8,
    }
    return Spec(**{**defaults, **changes})


@pytest.fixture
def search(tmp_path):
    """search(script, specs, budget) -> (result, executor); a second call resumes in the same folder."""

    def run(script, specs, *, budget=2000.0, on_start=None, seed=0):
        executor = MockExecutor(script, seed=seed, on_start=on_start, directory=tmp_path / "trials")
        journal = Journal(tmp_path / "journal.jsonl")
        laboratory = Laboratory(
            executor,
            journal,
            directory=tmp_path,
            budget=Budget(budget, executor.now),
            progress=Silent(),
            num_cpus=2,
        )
        tune = Tune(
            command=("python", "train.py"),
            machine=this_machine(),
            specs=specs,
            laboratory=laboratory,
            progress=Silent(),
        )
        try:
            return tune.run(), executor
        finally:
            laboratory.close()

    return run


def outcomes(result):
    return {technique.name: technique.outcome for technique in result.techniques}


def test_what_is_faster_is_kept_and_what_is_not_is_left(search):
    script = MockScript(speedups={"fast": 1.5, "slow": 0.8, "faster": 1.3}, no_effect=frozenset({"idle"}))
    result, _ = search(script, [spec("fast"), spec("slow"), spec("idle"), spec("faster")])
    assert [choice.name for choice in result.recipe.techniques] == ["fast", "faster"]
    assert outcomes(result) == {
        "fast": TechniqueOutcome.KEPT,
        "slow": TechniqueOutcome.NO_GAIN,
        "idle": TechniqueOutcome.NO_EFFECT,
        "faster": TechniqueOutcome.KEPT,
    }
    assert result.confirmed
    assert result.speedup.low < 1.95 < result.speedup.high
    assert result.speedup.low > 1.4
    assert {ablation.name: ablation.note for ablation in result.ablation} == {"fast": "pays", "faster": "pays"}


def test_wrong_numbers_are_refused_whatever_they_gain(search):
    result, _executor = search(MockScript(speedups={"wrong": 5.0}, shifts={"wrong": 0.3}), [spec("wrong")])
    assert result.recipe.techniques == ()
    assert outcomes(result) == {"wrong": TechniqueOutcome.BROKE_NUMERICS}
    assert result.techniques[0].verdict.broken
    assert result.speedup.median == 1.0


def test_a_small_shift_within_the_rounding_envelope_is_kept(search):
    result, _ = search(MockScript(speedups={"half": 1.5}, shifts={"half": 0.002}), [spec("half")])
    assert outcomes(result) == {"half": TechniqueOutcome.KEPT}


@pytest.mark.parametrize("step", [7, 20, 48])
def test_a_fault_after_the_steps_of_a_trial_is_found_before_the_recipe_is_given(search, step):
    script = MockScript(speedups={"late": 1.5, "good": 1.4}, late_shifts={"late": (step, 0.2)})
    result, _ = search(script, [spec("late"), spec("good")])
    assert outcomes(result) == {"late": TechniqueOutcome.BROKE_NUMERICS, "good": TechniqueOutcome.KEPT}
    assert f"at step {step}" in next(known.reason for known in result.techniques if known.name == "late")
    assert [choice.name for choice in result.recipe.techniques] == ["good"]
    assert any(sentence.startswith("over 48 steps, losses") for sentence in result.verdict.evidence)


def test_a_technique_that_draws_other_numbers_is_examined_with_those_of_the_command(search):
    script = MockScript(speedups={"draws": 1.5})
    result, executor = search(script, [spec("draws", changes_draws=True)])
    examined = [plan for plan in executor.started if plan.role is Role.EXAMINED]
    assert [plan.evidence.tie_draws for plan in examined] == [True]
    assert outcomes(result) == {"draws": TechniqueOutcome.KEPT}


def test_a_technique_that_crashes_when_it_is_examined_is_left_out(search):
    script = MockScript(speedups={"rash": 3.0, "good": 1.5}, crashes_at={"rash": 1000})
    result, _ = search(script, [spec("rash"), spec("good")])
    assert outcomes(result)["good"] is TechniqueOutcome.KEPT
    assert result.verdict.kept


def test_a_failing_technique_is_recorded_with_its_reason(search):
    failure = Ended(outcome=Outcome.COMPILE_FAILED, message="BackendCompilerFailed: no C++")
    result, _ = search(MockScript(failures={"broken": failure}), [spec("broken"), spec("other")])
    assert outcomes(result)["broken"] is TechniqueOutcome.FAILED
    assert result.techniques[0].reason == "BackendCompilerFailed: no C++"


def test_identical_processes_that_differ_by_restarts_give_an_empty_recipe(search, tmp_path):
    script = MockScript(restart_sd=0.025, block_sd=0.08)
    result, _ = search(script, [spec(name) for name in "abcdef"], seed=3)
    assert result.recipe.techniques == ()


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (Ended(outcome=Outcome.EXCEPTION, message="ValueError: x at t.py:1"), "ValueError: x at t.py:1"),
        (Ended(outcome=Outcome.NO_TRAINING, exit_status=0), "without a training step"),
        (Ended(outcome=Outcome.HANG, message="no step for 180 s; it was ended"), "no step for 180 s"),
    ],
)
def test_a_command_that_fails_by_itself_is_status_3(search, ended, words):
    with pytest.raises(CommandFailed, match=words) as caught:
        search(MockScript(failures={"": ended}), [spec("fast")])
    assert caught.value.exit_status == 3


def test_three_steps_are_too_few_to_compare(search):
    result, _ = search(MockScript(total_steps=3), [spec("fast")])
    assert outcomes(result) == {"fast": TechniqueOutcome.UNTRIED}
    assert "only 3 training steps; 12 are needed" in result.summary


def test_a_short_run_is_compared_by_restarting_it(search):
    script = MockScript(speedups={"fast": 2.0}, total_steps=40)
    result, _executor = search(script, [spec("fast")])
    assert [choice.name for choice in result.recipe.techniques] == ["fast"]


@pytest.mark.parametrize("total_steps", [12, 13, 17, 20, 29, 30, 100])
def test_runs_of_any_length_are_judged_over_equally_many_steps(search, total_steps):
    result, _ = search(MockScript(speedups={"fast": 2.0}, total_steps=total_steps), [spec("fast")])
    (technique,) = result.techniques
    assert technique.outcome in (TechniqueOutcome.KEPT, TechniqueOutcome.NO_GAIN), technique.reason
    assert technique.verdict.kept


def test_a_finished_trial_is_never_run_twice(search):
    script = MockScript(speedups={"fast": 1.5, "faster": 1.3})
    specs = [spec("fast"), spec("faster")]
    first, executor = search(script, specs)
    assert len(executor.started) > 5
    again, resumed = search(script, specs)
    assert resumed.started == []
    assert again.recipe == first.recipe
    assert again.speedup == first.speedup


def test_a_search_interrupted_anywhere_resumes_to_the_same_recipe(search, tmp_path):
    script = MockScript(speedups={"fast": 1.5, "faster": 1.3, "slow": 0.7})
    specs = [spec("fast"), spec("slow"), spec("faster")]
    started = []

    def interrupt(plan):
        started.append(plan.trial)
        if len(started) % 4 == 0:
            raise KeyboardInterrupt

    for _ in range(30):
        try:
            result, _ = search(script, specs, on_start=interrupt)
            break
        except KeyboardInterrupt:
            continue
    assert [choice.name for choice in result.recipe.techniques] == ["fast", "faster"]
    assert started.count("baseline") == 1
    assert started.count("repeat") <= 2


def test_the_budget_ends_the_search_and_says_what_was_not_tried(search):
    script = MockScript(step_seconds=1.0, speedups={"a": 1.5})
    result, executor = search(script, [spec(name) for name in "abcdefgh"], budget=240.0)
    assert TechniqueOutcome.UNTRIED in outcomes(result).values()
    assert not result.finished
    assert executor.now() < 480


def test_a_dear_start_is_paid_back_after_a_stated_number_of_steps(search):
    script = MockScript(step_seconds=0.1, speedups={"compiled": 2.0}, extra_startup={"compiled": 50.0})
    result, _ = search(script, [spec("compiled")])
    assert result.break_even_steps == pytest.approx(1000, rel=0.05)


def test_a_command_of_which_two_copies_cannot_live_is_run_in_turn(search):
    script = MockScript(speedups={"fast": 1.5, "slow": 0.8}, exclusive=True)
    result, _executor = search(script, [spec("fast"), spec("slow")])
    assert [choice.name for choice in result.recipe.techniques] == ["fast"]
    assert result.speedup.low > 1.2
    assert any("address already in use" in warning for warning in result.warnings)


@pytest.mark.parametrize("step", [3, 20, 60])
def test_a_technique_that_crashes_after_some_steps_is_failed_however_fast(search, step):
    result, _ = search(MockScript(speedups={"rash": 3.0}, crashes_at={"rash": step}), [spec("rash")])
    assert outcomes(result) == {"rash": TechniqueOutcome.FAILED}
    assert result.techniques[0].reason == "RuntimeError: odd batch"


@pytest.mark.parametrize("step", [10, 20, 60])
def test_weights_that_become_nan_under_a_technique_break_its_numbers_and_the_steps_are_told(search, step):
    result, _ = search(MockScript(speedups={"burns": 3.0}, not_finite_at={"burns": step}), [spec("burns")])
    assert outcomes(result) == {"burns": TechniqueOutcome.BROKE_NUMERICS}
    first, last = map(int, re.search(r"nan or infinite in steps (\d+) to (\d+)", result.techniques[0].reason).groups())
    assert first <= step <= last
    assert result.recipe.techniques == ()


def test_weights_that_become_nan_in_runs_one_at_a_time_are_seen_too(search):
    script = MockScript(speedups={"burns": 3.0}, not_finite_at={"burns": 20}, exclusive=True)
    result, _ = search(script, [spec("burns")])
    assert outcomes(result) == {"burns": TechniqueOutcome.BROKE_NUMERICS}


def test_a_command_whose_own_weights_become_nan_is_warned_of_and_no_technique_is_blamed(search):
    result, _ = search(MockScript(speedups={"fast": 1.5}, not_finite_at={"": 20}), [spec("fast")])
    assert outcomes(result) == {"fast": TechniqueOutcome.KEPT}
    assert any("own numbers are not finite" in warning and "in steps" in warning for warning in result.warnings)


def test_a_full_disk_ends_the_search_and_says_nothing_about_a_technique(search, tmp_path):
    full = Ended(outcome=Outcome.DISK_FULL, message="OSError: [Errno 28] No space left on device")
    with pytest.raises(StorageError, match="no room for what the command writes") as caught:
        search(MockScript(speedups={"fast": 1.5}, failures={"fast": full}), [spec("fast")])
    assert "--out" in caught.value.hint
    result, _ = search(MockScript(speedups={"fast": 1.5}), [spec("fast")])  # there is room again
    assert outcomes(result) == {"fast": TechniqueOutcome.KEPT}


def test_a_full_disk_is_no_failure_of_the_command(search):
    full = Ended(outcome=Outcome.DISK_FULL, message="OSError: [Errno 28] No space left on device")
    with pytest.raises(StorageError):
        search(MockScript(failures={"": full}), [spec("fast")])


def test_a_technique_that_does_not_fit_beside_another_run_is_tried_alone(search):
    result, _ = search(MockScript(speedups={"large": 1.5}, crowded=frozenset({"large"})), [spec("large")])
    assert outcomes(result) == {"large": TechniqueOutcome.KEPT}


def test_a_failure_of_the_run_beside_it_is_not_told_as_the_techniques_own(search):
    result, _ = search(MockScript(crashes_at={"": 100}), [spec("fast")])
    assert result.techniques[0].reason == "the run beside it failed: RuntimeError: odd batch"


def test_an_envelope_that_failed_is_not_run_again(search):
    started = []

    def note(plan):
        started.append(plan)
        script.failures.pop("", None)
        if plan.role is Role.ROUNDING:
            script.failures[""] = Ended(outcome=Outcome.HANG, message="no step for 180 s")

    script = MockScript(speedups={"fast": 1.5, "faster": 1.7}, failures={})
    for _ in range(2):
        result, _ = search(script, [spec("fast"), spec("faster")], on_start=note)
        assert set(outcomes(result).values()) == {TechniqueOutcome.FAILED}
        assert "no step for 180 s" in result.techniques[0].reason
    assert [plan.role for plan in started].count(Role.ROUNDING) == 1


def test_a_replaced_setting_is_no_longer_called_kept(search):
    specs = [spec("mode", candidates=lambda m, s, p: (Options(level=1), Options(level=2)))]

    def faster_at_two(plan):
        executor_script.speedups["mode"] = 1.3 if all(not c.options for c in plan.techniques) else 2.0

    executor_script = MockScript(speedups={"mode": 1.3})
    result, _ = search(executor_script, specs, on_start=faster_at_two)
    assert [t.outcome for t in result.techniques] == [TechniqueOutcome.NO_GAIN, TechniqueOutcome.KEPT]
    assert "replaced" in result.techniques[0].reason


def test_a_run_that_ends_before_the_start_is_paid_back_is_warned_of(search):
    script = MockScript(speedups={"compiled": 2.0}, extra_startup={"compiled": 50.0}, total_steps=100)
    result, _ = search(script, [spec("compiled")])
    assert result.break_even_steps > 100
    assert any("This run makes 100 steps" in warning for warning in result.warnings)


def test_refusals_and_hopeless_bounds_are_recorded_and_not_run(search):
    specs = [
        spec("refused", unavailable=lambda machine, site: "needs a GPU"),
        spec("hopeless", bound=lambda phases, site: 1.001),
        spec("lossy", numerics=Numerics.LOSSY),
    ]
    result, executor = search(MockScript(), specs)
    reasons = {technique.name: (technique.outcome, technique.reason) for technique in result.techniques}
    assert reasons["refused"] == (TechniqueOutcome.REFUSED, "needs a GPU")
    assert reasons["hopeless"][0] is TechniqueOutcome.NO_GAIN
    assert reasons["lossy"][0] is TechniqueOutcome.REFUSED
    assert all(plan.techniques == () for plan in executor.started)


def test_candidates_with_the_larger_bound_go_first(search):
    specs = [spec("small", bound=lambda p, s: 1.1), spec("large", bound=lambda p, s: 2.0)]
    _, executor = search(MockScript(), specs)
    tried = [plan.techniques[0].name for plan in executor.started if plan.techniques]
    assert tried[0] == "large"


def test_a_second_setting_of_a_technique_replaces_the_first(search):
    specs = [spec("mode", candidates=lambda m, s, p: (Options(level=1), Options(level=2)))]
    result, executor = search(MockScript(speedups={"mode": 1.5}), specs)
    assert [choice.name for choice in result.recipe.techniques] == ["mode"]
    assert all(len(plan.techniques) <= 1 for plan in executor.started)


def test_trials_have_roles_and_the_noise_is_measured_before_candidates(search):
    _, executor = search(MockScript(), [spec("fast")])
    roles = [plan.role for plan in executor.started]
    assert roles[0] is Role.BASELINE
    assert Role.REPEAT in roles[:3]
    first_candidate = next(i for i, plan in enumerate(executor.started) if plan.techniques)
    assert {Role.ROUNDING} <= set(roles[:first_candidate])
    assert TechniqueChoice(name="fast") in executor.started[first_candidate].techniques

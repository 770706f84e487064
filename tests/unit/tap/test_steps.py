import pytest

from fulltilt.records.words import Outcome


@pytest.mark.parametrize(
    ("shape", "executed"),
    [
        ("accumulation", {"Adam#0": 12}),
        ("gan", {"Adam#0": 12, "Adam#1": 11}),
        ("closure", {"LBFGS#0": 12}),
        ("by_hand", {}),
        ("loader", {"Adam#0": 12}),
    ],
)
def test_one_period_of_the_loop_is_one_step(start_trial, python, scripts, shape, executed):
    executor, trial = start_trial([python, str(scripts / "loops.py"), shape, "12"], evidence_steps=12)
    trial.wait_ready(executor.now() + 60)
    assert trial.record.num_steps == 12
    assert trial.record.evidence.executed_steps == executed


def test_a_second_phase_with_another_optimizer_goes_on_counting(start_trial, python, scripts):
    executor, trial = start_trial([python, str(scripts / "loops.py"), "two_phases", "40"], evidence_steps=100)
    assert trial.wait_ready(executor.now() + 60).outcome is Outcome.ENDED
    assert 37 <= trial.record.num_steps <= 40


def test_losses_of_all_backward_calls_of_a_step_are_recorded(start_trial, python, scripts):
    executor, trial = start_trial([python, str(scripts / "loops.py"), "accumulation", "9"], evidence_steps=5)
    trial.wait_ready(executor.now() + 60)
    assert [len(losses) for losses in trial.record.evidence.losses] == [4] * 5


def test_the_site_and_its_phases_are_described(start_trial, python, scripts):
    executor, trial = start_trial([python, str(scripts / "loops.py"), "loader", "400"], profile_steps=4)
    trial.wait_ready(executor.now() + 60)
    record = trial.record
    assert [module.class_name for module in record.site.modules] == ["Linear"]
    assert [optimizer.class_name for optimizer in record.site.optimizers] == ["Adam"]
    assert [loader.batch_size for loader in record.site.loaders] == [8]
    phases = record.phases
    assert phases.data_wait is not None
    parts = (phases.data_wait, phases.forward, phases.backward, phases.optimizer, phases.other)
    assert sum(parts) == pytest.approx(phases.step_seconds, rel=0.02)


def test_what_is_not_measured_is_none(start_trial, python, scripts):
    executor, trial = start_trial([python, str(scripts / "loops.py"), "by_hand", "400"], profile_steps=4)
    trial.wait_ready(executor.now() + 60)
    assert trial.record.phases.data_wait is None
    assert trial.record.phases.optimizer is None
    assert trial.record.phases.backward > 0

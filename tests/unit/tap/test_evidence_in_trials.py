import pytest


def evidence_of(start_trial, python, scripts, name, **request):
    executor, trial = start_trial([python, str(scripts / "plain.py"), "50"], evidence_steps=5, name=name, **request)
    trial.wait_ready(executor.now() + 60)
    record = trial.close()
    assert record.num_steps >= 5
    return trial.record.evidence


def test_the_same_run_repeats_bit_by_bit(start_trial, python, scripts):
    first, second = (evidence_of(start_trial, python, scripts, name) for name in ("a", "b"))
    assert first == second
    assert len(first.losses) == 5
    assert set(first.parameters) == {f"Sequential#0.{layer}.{part}" for layer in (0, 2) for part in ("weight", "bias")}


def test_perturbed_weights_move_the_numbers_by_about_as_much(start_trial, python, scripts):
    plain = evidence_of(start_trial, python, scripts, "a")
    moved = evidence_of(start_trial, python, scripts, "b", perturb_relative=0.004, perturb_seed=1)
    relative = abs(moved.losses[0][0] / plain.losses[0][0] - 1)
    assert 0 < relative < 0.02
    assert moved.parameters["Sequential#0.0.weight"].start != plain.parameters["Sequential#0.0.weight"].start


def test_reseeding_changes_draws_and_not_the_first_weights(start_trial, python, scripts):
    plain = evidence_of(start_trial, python, scripts, "a")
    reseeded = evidence_of(start_trial, python, scripts, "b", reseed=5)
    assert reseeded.draws != plain.draws
    assert all(reseeded.parameters[name].start == known.start for name, known in plain.parameters.items())


@pytest.mark.parametrize("shape", ["gan", "by_hand", "closure"])
def test_every_parameter_has_start_gradient_and_end(start_trial, python, scripts, shape):
    executor, trial = start_trial([python, str(scripts / "loops.py"), shape, "9"], evidence_steps=4)
    trial.wait_ready(executor.now() + 60)
    parameters = trial.record.evidence.parameters
    assert len(parameters) == (4 if shape == "gan" else 2)
    for parameter in parameters.values():
        assert parameter.first_gradient.norm > 0
        assert parameter.start != parameter.end

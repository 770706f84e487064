"""What a long run records of real scripts."""

import math

import pytest

from fulltilt.records.words import Outcome


def long_run(start_trial, command, *, steps, name="t1", **request):
    executor, trial = start_trial(command, evidence_steps=steps, whole_curve=True, name=name, **request)
    ended = trial.wait_ready(executor.now() + 120)
    trial.close()
    return ended, trial.record


def test_the_loss_of_every_step_is_recorded_and_the_run_stops_there(start_trial, python, scripts):
    ready, record = long_run(start_trial, [python, str(scripts / "plain.py"), "100000"], steps=600)
    assert ready.num_steps == 600
    (losses,) = record.curve.losses.values()
    assert len(losses) == 600
    assert losses[-1] < 0.1 * losses[0]
    assert record.evidence is None


def test_a_shorter_script_is_recorded_to_its_end(start_trial, python, scripts):
    ended, record = long_run(start_trial, [python, str(scripts / "plain.py"), "30"], steps=600)
    assert ended.outcome is Outcome.ENDED
    assert record.curve.num_steps == 30
    assert [len(losses) for losses in record.curve.losses.values()] == [30]


@pytest.mark.parametrize(
    ("shape", "lengths"),
    [
        ("accumulation", {"Adam#0": 12}),
        ("gan", {"Adam#0": 12, "Adam#1": 11}),
        ("closure", {"LBFGS#0": 12}),
        ("by_hand", {"": 12}),
        ("loader", {"Adam#0": 12}),
    ],
)
def test_each_optimizer_has_a_curve_with_a_point_for_each_of_its_steps(start_trial, python, scripts, shape, lengths):
    _, record = long_run(start_trial, [python, str(scripts / "loops.py"), shape, "20"], steps=12)
    assert {name: len(losses) for name, losses in record.curve.losses.items()} == lengths
    assert all(math.isfinite(loss) for losses in record.curve.losses.values() for loss in losses)


def test_losses_without_gradients_are_evaluations(start_trial, python, scripts):
    _, record = long_run(start_trial, [python, str(scripts / "evaluated.py"), "60"], steps=1000)
    (points,) = record.curve.evaluations.values()
    assert [(point.num_steps, point.num_calls) for point in points] == [(20, 1), (40, 1), (60, 1)]
    assert set(record.curve.evaluations) == {"cross_entropy"}


@pytest.mark.parametrize("words", [[], ["seeded"], ["seeded", "loader"]])
def test_runs_repeat_with_their_seed_and_differ_with_another(start_trial, python, scripts, words):
    command = [python, str(scripts / "evaluated.py"), "40", *words]
    first, again, other = (
        long_run(start_trial, command, steps=12, name=name, reseed=seed)[1].curve.losses["AdamW#0"]
        for name, seed in (("a", 5), ("b", 5), ("c", 6))
    )
    assert first == again
    assert first != other


def test_a_script_that_resists_seeds_is_moved_by_its_weights_alone(start_trial, python, scripts):
    command = [python, str(scripts / "evaluated.py"), "40", "seeded", "fixed"]
    first, other, nudged = (
        long_run(start_trial, command, steps=40, name=name, reseed=seed, **more)[1].curve.losses["AdamW#0"]
        for name, seed, more in (("a", 5, {}), ("b", 6, {}), ("c", 6, {"perturb_relative": 2.0**-20}))
    )
    assert first == other
    assert first != nudged
    assert nudged == pytest.approx(first, rel=1e-2)


def test_a_loss_is_recorded_as_it_was_before_a_scaler_scaled_it(start_trial, python, tmp_path):
    (tmp_path / "script.py").write_text(
        "import torch\n"
        "model = torch.nn.Linear(4, 1); optimizer = torch.optim.SGD(model.parameters(), lr=0.01)\n"
        "scaler = torch.amp.GradScaler('cpu', init_scale=1024.0, growth_interval=3)\n"
        "x = torch.ones(8, 4)\n"
        "for _ in range(10):\n"
        "    loss = (model(x) - 1).square().mean()\n"
        "    optimizer.zero_grad(); scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()\n"
    )
    _, record = long_run(start_trial, [python, "script.py"], steps=8)
    (losses,) = record.curve.losses.values()
    assert max(losses) < 50
    assert list(losses) == sorted(losses, reverse=True)


def test_loss_functions_can_still_be_scripted_and_compiled(start_trial, python, tmp_path):
    (tmp_path / "script.py").write_text(
        "import torch\nfrom torch.nn import functional as F\n"
        "@torch.jit.script\n"
        "def scripted(x, y):\n    return F.mse_loss(x, y)\n"
        "compiled = torch.compile(lambda x, y: F.mse_loss(x, y), backend='eager', fullgraph=True)\n"
        "model = torch.nn.Linear(4, 1); optimizer = torch.optim.SGD(model.parameters(), lr=0.01)\n"
        "x, y = torch.ones(8, 4), torch.ones(8, 1)\n"
        "for _ in range(4):\n"
        "    loss = scripted(model(x), y) + compiled(model(x), y)\n"
        "    optimizer.zero_grad(); loss.backward(); optimizer.step()\n"
        "    with torch.no_grad(): compiled(model(x), y); scripted(model(x), y)\n"
    )
    ended, record = long_run(start_trial, [python, "-W", "ignore", "script.py"], steps=100)
    assert (ended.outcome, ended.message) == (Outcome.ENDED, "")
    assert record.curve.num_steps == 4
    assert record.curve.evaluations == {}

import copy

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from fulltilt.technique import Applied, NoEffect
from fulltilt.techniques.fused_optimizer.apply import apply
from fulltilt.techniques.fused_optimizer.spec import FusedOptimizerOptions
from fulltilt.testing.fake_site import FakeSite

IMPLEMENTATIONS = ["fused", "foreach"]


def switch(optimizer, implementation="fused"):
    return apply(FakeSite(optimizers=optimizer), FusedOptimizerOptions(implementation=implementation))


def parameters(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(3, 4, generator=generator)), nn.Parameter(torch.randn(4, generator=generator))]


def set_gradients(parameters, seed=1):
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def steps(optimizer, held, seeds):
    for seed in seeds:
        set_gradients(held, seed)
        optimizer.step()


def assert_same(left, right):
    for a, b in zip(left, right, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.Adam(p, amsgrad=True, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, lr=1e-2, maximize=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.1, initial_accumulator_value=0.5),
    ],
)
def test_updates_are_those_of_the_plain_optimizer(make, implementation):
    plain, switched = parameters(), parameters()
    plain_optimizer, optimizer = make(plain), make(switched)
    set_gradients(switched)
    result = switch(optimizer, implementation)
    assert isinstance(result, Applied)
    assert result.engaged() is None
    steps(plain_optimizer, plain, range(4))
    steps(optimizer, switched, range(4))
    assert (
        result.engaged()
        == f"_{'fused' if implementation == 'fused' else 'multi_tensor'}_"
        + ("adam" if isinstance(optimizer, torch.optim.Adam) else type(optimizer).__name__.lower())
        + " ran"
    )
    assert_same(plain, switched)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_nothing_of_it_is_in_checkpoints_copies_or_groups(implementation):
    held = parameters()
    optimizer = torch.optim.AdamW(held)
    untouched = copy.deepcopy(optimizer.state_dict()["param_groups"])
    set_gradients(held)
    switch(optimizer, implementation)
    optimizer.step()
    assert optimizer.state_dict()["param_groups"] == untouched
    assert copy.deepcopy(optimizer).state_dict()["param_groups"] == untouched
    assert optimizer.param_groups[0]["fused"] is None


@pytest.mark.parametrize(("saver", "loader"), [("fused", None), (None, "fused"), ("foreach", "fused")])
def test_checkpoints_load_in_both_directions(saver, loader):
    plain, first, second = parameters(), parameters(), parameters()
    plain_optimizer = torch.optim.Adam(plain)
    steps(plain_optimizer, plain, range(4))

    saving = torch.optim.Adam(first)
    set_gradients(first)
    if saver:
        assert isinstance(switch(saving, saver), Applied)
    steps(saving, first, range(2))

    loading = torch.optim.Adam(second)
    set_gradients(second)
    result = switch(loading, loader) if loader else None
    loading.load_state_dict(copy.deepcopy(saving.state_dict()))
    with torch.no_grad():
        for target, source in zip(second, first, strict=True):
            target.copy_(source)
    steps(loading, second, range(2, 4))
    assert_same(plain, second)
    assert result is None or result.engaged()


def test_a_checkpoint_loaded_later_does_not_switch_it_off(monkeypatch):
    held = parameters()
    optimizer = torch.optim.Adam(held)
    set_gradients(held)
    result = switch(optimizer)
    saved = copy.deepcopy(optimizer.state_dict())
    saved["param_groups"][0]["foreach"] = False
    optimizer.load_state_dict(saved)
    steps(optimizer, held, range(2))
    assert result.engaged() == "_fused_adam ran"
    assert optimizer.param_groups[0]["foreach"] is False


def test_step_counts_in_float64_are_taken_over():
    held = parameters()
    optimizer = torch.optim.Adam(held)
    steps(optimizer, held, [0])
    for state in optimizer.state.values():
        state["step"] = state["step"].double()
    assert isinstance(switch(optimizer), Applied)
    steps(optimizer, held, [1])
    assert {state["step"].dtype for state in optimizer.state.values()} == {torch.float32}
    assert {state["step"].item() for state in optimizer.state.values()} == {2.0}


def test_a_group_added_later_steps_too():
    plain, switched = parameters(), parameters()
    optimizers = [torch.optim.SGD(held[:1], lr=0.1) for held in (plain, switched)]
    set_gradients(switched)
    switch(optimizers[1])
    for held, optimizer in zip((plain, switched), optimizers, strict=True):
        optimizer.add_param_group({"params": held[1:], "lr": 0.5})
        steps(optimizer, held, range(2))
    assert_same(plain, switched)


def test_learning_rate_schedulers_work_without_a_warning():
    held = parameters()
    optimizer = torch.optim.AdamW(held, lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    set_gradients(held)
    switch(optimizer)
    optimizer.step()
    scheduler.step()
    optimizer.step()
    assert optimizer.param_groups[0]["lr"] == 0.25


@pytest.mark.parametrize("where", ["gradient", "state", "parameter"])
@pytest.mark.parametrize("cls", [torch.optim.Adam, torch.optim.SGD, torch.optim.Adagrad])
def test_memory_layouts_that_differ_do_not_mix_up_weights(cls, where):
    """torch's own fused kernels on the CPU do, without an error."""
    settings = {"momentum": 0.9} if cls is torch.optim.SGD else {}
    results = []
    for switched in (False, True):
        weight = nn.Parameter(torch.arange(48.0).reshape(2, 4, 2, 3).sin())
        optimizer = cls([weight], lr=0.1, **settings)
        gradient = torch.arange(48.0).reshape(2, 4, 2, 3).cos()
        weight.grad = gradient.clone()
        if switched:
            assert isinstance(switch(optimizer), Applied)
        optimizer.step()
        if where == "gradient":
            weight.grad = gradient.contiguous(memory_format=torch.channels_last)
        elif where == "parameter":
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)
            weight.grad = gradient.contiguous(memory_format=torch.channels_last)
        else:
            state = copy.deepcopy(optimizer.state_dict())
            for key, value in state["state"][0].items():
                if value is not None and value.dim() == 4:
                    state["state"][0][key] = value.contiguous(memory_format=torch.channels_last)
            optimizer.load_state_dict(state)
        optimizer.step()
        optimizer.step()
        results.append(weight.detach().clone())
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-6)


def test_a_gradient_that_becomes_sparse_later_is_stepped_the_plain_way():
    table = nn.Embedding(4, 2, sparse=True)
    dense = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([dense, table.weight], lr=0.1)
    dense.grad = torch.ones(2)
    assert isinstance(switch(optimizer), Applied)
    table(torch.tensor([1])).sum().backward()
    before = table.weight.detach().clone()
    optimizer.step()
    assert (table.weight.detach() - before)[1].tolist() == pytest.approx([-0.1, -0.1])


def test_a_tensor_learning_rate_stays_one_and_foreach_is_refused():
    held = parameters()
    rate = torch.tensor(0.01)
    optimizer = torch.optim.AdamW(held, lr=rate)
    set_gradients(held)
    refused = switch(optimizer, "foreach")
    assert isinstance(refused, NoEffect)
    assert "lr as a Tensor" in refused.reason
    assert isinstance(switch(optimizer, "fused"), Applied)
    optimizer.step()
    assert optimizer.param_groups[0]["lr"] is rate


def test_explicit_unscaling_divides_once():
    results = []
    for switched in (False, True):
        held = parameters()
        optimizer = torch.optim.Adam(held, lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale(sum((p**2).sum() for p in held)).backward()
            if switched and not optimizer.state:
                assert isinstance(switch(optimizer), Applied)
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(held, 1.0)
            scaler.step(optimizer)
            scaler.update()
        results.append(held)
    assert_same(*results)


def test_an_infinite_gradient_under_a_scaler_changes_nothing():
    held = parameters()
    optimizer = torch.optim.Adam(held)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(sum((p**2).sum() for p in held)).backward()
    switch(optimizer)
    held[0].grad[0, 0] = float("inf")
    before = [p.detach().clone() for p in held]
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    assert all(torch.equal(p.detach(), b) for p, b in zip(held, before, strict=True))


def test_nobody_who_counts_steps_sees_the_trial_step():
    held = parameters()
    optimizer = torch.optim.Adam(held)
    set_gradients(held)
    seen = []
    handle = register_optimizer_step_post_hook(lambda stepped, args, kwargs: seen.append(stepped))
    switch(optimizer)
    handle.remove()
    assert seen == []


def test_a_step_that_raises_leaves_no_flag_behind(monkeypatch):
    held = parameters()
    optimizer = torch.optim.Adam(held)
    set_gradients(held)
    switch(optimizer)

    def closure():
        raise KeyError("mine")

    with pytest.raises(KeyError):
        optimizer.step(closure)
    assert optimizer.state_dict()["param_groups"][0]["fused"] is None
    optimizer.step()
    assert optimizer.state[held[0]]["step"].item() == 1.0


class Inheriting(torch.optim.AdamW):
    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)


class OwnStep(torch.optim.AdamW):
    def step(self, closure=None):
        return super().step(closure)


def test_a_class_that_inherits_the_step_is_switched():
    held = parameters()
    optimizer = Inheriting(held)
    set_gradients(held)
    assert isinstance(switch(optimizer), Applied)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (OwnStep, "step() of its own"),
        (lambda p: torch.optim.AdamW(p, fused=True), "fused already"),
        (lambda p: torch.optim.Adam(p, differentiable=True), "differentiates"),
        (torch.optim.LBFGS, "has no fused implementation"),
        (torch.optim.RMSprop, "has no fused implementation"),
    ],
)
def test_a_reason_is_given_where_it_does_not_fit(make, reason):
    held = parameters()
    optimizer = make(held)
    set_gradients(held)
    result = switch(optimizer)
    assert isinstance(result, NoEffect)
    assert reason in result.reason


def test_complex_parameters_and_missing_gradients_are_refused():
    weight = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    optimizer = torch.optim.Adam([weight])
    assert "no parameter has a gradient" in switch(optimizer).reason
    weight.grad = torch.ones(2, dtype=torch.complex64)
    assert "complex" in switch(optimizer).reason

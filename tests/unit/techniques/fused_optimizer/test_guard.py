"""Optimizers of every kind, and what scripts do with them: nothing of ours is found in them afterwards."""

import copy

import pytest
import torch
from torch import nn

from fulltilt.technique import Applied, NoEffect
from fulltilt.techniques.fused_optimizer.apply import apply
from fulltilt.techniques.fused_optimizer.spec import FusedOptimizerOptions
from fulltilt.testing.fake_site import FakeSite

optim = torch.optim
MAKERS = {
    "groups that differ": lambda p: optim.AdamW(
        [{"params": p[:1], "lr": 1e-2, "weight_decay": 0.0}, {"params": p[1:], "betas": (0.5, 0.9), "amsgrad": True}]
    ),
    "one group maximizes": lambda p: optim.AdamW([{"params": p[:1]}, {"params": p[1:], "maximize": True}]),
    "one group is fused": lambda p: optim.AdamW([{"params": p[:1], "fused": True}, {"params": p[1:]}]),
    "one group is foreach": lambda p: optim.AdamW([{"params": p[:1], "foreach": True}, {"params": p[1:]}]),
    "foreach by the script": lambda p: optim.AdamW(p, foreach=True),
    "no foreach by the script": lambda p: optim.Adam(p, foreach=False, weight_decay=0.1),
    "tensor rates": lambda p: optim.AdamW([{"params": p[:1], "lr": torch.tensor(1e-2)}, {"params": p[1:]}]),
    "tensor betas": lambda p: optim.AdamW(p, betas=(torch.tensor(0.9), torch.tensor(0.99))),
    "differentiable": lambda p: optim.AdamW([{"params": p[:1]}, {"params": p[1:], "differentiable": True}]),
    "an empty parameter": lambda p: optim.AdamW([*p, nn.Parameter(torch.zeros(0, 3))]),
    "a parameter without gradient": lambda p: optim.AdamW([*p, nn.Parameter(torch.ones(3))]),
    "no weight decay": lambda p: optim.AdamW(p, weight_decay=0.0, eps=0.0),
    "nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "momentum in one group": lambda p: optim.SGD([{"params": p[:1], "momentum": 0.9}, {"params": p[1:]}], lr=0.1),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.1),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.1, centered=True, momentum=0.9),
    "NAdam": lambda p: optim.NAdam(p, decoupled_weight_decay=True),
    "RAdam": optim.RAdam,
    "Adamax": optim.Adamax,
    "Adadelta": optim.Adadelta,
    "ASGD": optim.ASGD,
    "Rprop": optim.Rprop,
    "Adafactor": optim.Adafactor,
}


def parameters():
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((3, 4), (4,), ())]


def step(optimizer, held, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in held:
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer.step()


def described(state_dict):
    kinds = {
        number: {key: (v.dtype, v.device, v.shape) if isinstance(v, torch.Tensor) else v for key, v in state.items()}
        for number, state in state_dict["state"].items()
    }
    return kinds, repr(state_dict["param_groups"])


@pytest.mark.parametrize("implementation", ["fused", "foreach"])
@pytest.mark.parametrize("name", MAKERS)
def test_updates_state_and_groups_are_those_of_the_script(name, implementation):
    ran = []
    for switched in (False, True):
        held = parameters()
        optimizer = MAKERS[name](held)
        scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        step(optimizer, held, 0)
        if switched:
            apply(FakeSite(optimizers=optimizer), FusedOptimizerOptions(implementation=implementation))
        for seed in range(1, 4):
            step(optimizer, held, seed)
            scheduler.step()
        before_loading = described(optimizer.state_dict())
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        step(optimizer, held, 4)
        ran.append((held, before_loading, described(optimizer.state_dict()), optimizer.param_groups[0].keys()))
    plain, found = ran
    torch.testing.assert_close(found[0], plain[0], rtol=1e-5, atol=1e-6)
    assert found[1:] == plain[1:]


def test_a_parameter_of_one_number_is_no_reason_to_refuse():
    for make in (optim.Adagrad, optim.NAdam):
        held = parameters()
        optimizer = make(held)
        step(optimizer, held, 0)
        result = apply(FakeSite(optimizers=optimizer), FusedOptimizerOptions(implementation="foreach"))
        assert isinstance(result, Applied)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
def test_a_table_with_sparse_gradients_is_left_to_its_optimizer():
    table = nn.Embedding(4, 2, sparse=True)
    for make in (optim.SparseAdam, optim.SGD, optim.Adagrad):
        optimizer = make(list(table.parameters()))
        table(torch.tensor([1])).sum().backward()
        for implementation in ("fused", "foreach"):
            result = apply(FakeSite(optimizers=optimizer), FusedOptimizerOptions(implementation=implementation))
            assert isinstance(result, NoEffect)
        optimizer.step()
        optimizer.zero_grad()


def compiled_method(optimizer):
    return torch.compile(optimizer.step, backend="eager")


def compiled_function(optimizer):
    def train():
        optimizer.step()

    return torch.compile(train, backend="eager")


@pytest.mark.parametrize("compiled", [compiled_method, compiled_function])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_step_that_the_script_compiles_is_left_alone(compiled):
    held = parameters()
    optimizer = optim.AdamW(held)
    results = []

    def before(optimizer, args, kwargs):
        if not results:
            results.append(apply(FakeSite(optimizers=optimizer), FusedOptimizerOptions()))

    optimizer.register_step_pre_hook(torch._disable_dynamo(before))
    for parameter in held:
        parameter.grad = torch.ones_like(parameter)
    compiled(optimizer)()
    torch._dynamo.reset()
    assert [result.reason for result in results] == ["AdamW: the script compiles its step"]


def test_states_taken_out_and_put_back_while_training_goes_on_are_those_of_the_script():
    """A snapshot shares memory with the optimizer, or not, exactly as it does by itself (pytorch#196083)."""
    seen = []
    for switched in (False, True):
        held = parameters()
        optimizer = optim.AdamW(held)
        step(optimizer, held, 0)
        if switched:
            apply(FakeSite(optimizers=optimizer), FusedOptimizerOptions())
        snapshot = optimizer.state_dict()
        step(optimizer, held, 1)
        seen.append((snapshot["state"][0]["exp_avg"].sum().item(), snapshot["state"][0]["step"].item()))
    assert seen[1] == pytest.approx(seen[0])

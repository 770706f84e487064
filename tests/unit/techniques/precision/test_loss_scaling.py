import copy
import io

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from fulltilt.technique import NoEffect
from fulltilt.techniques.precision.apply import apply
from fulltilt.techniques.precision.loss_scaling import INITIAL_SCALE, LossScaling
from fulltilt.techniques.precision.spec import PrecisionOptions
from fulltilt.testing.fake_site import FakeSite

FLOAT16 = PrecisionOptions(dtype="float16")


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


@pytest.fixture
def scaled():
    """A model under float16, its optimizer, its site and the scaling."""
    net = make()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    with FakeSite(net, optimizer) as site:
        apply(site, FLOAT16)
        yield net, optimizer, site, LossScaling.of_process(site)


def gradients(net):
    return [parameter.grad.clone() for parameter in net.parameters()]


def plain_gradients(num_backwards=1):
    net = make()
    for _ in range(num_backwards):
        net(torch.ones(2, 4)).square().sum().backward()
    return gradients(net)


def test_gradients_that_the_script_reads_are_the_true_ones(scaled):
    net, *_ = scaled
    net(torch.ones(2, 4)).square().sum().backward()
    for found, expected in zip(gradients(net), plain_gradients(), strict=True):
        torch.testing.assert_close(found, expected, rtol=5e-3, atol=5e-3)


def test_accumulated_gradients_are_true_although_the_scale_changed_in_between(scaled):
    net, _, _, scaling = scaled
    net(torch.ones(2, 4)).square().sum().backward()
    scaling.scale /= 4
    net(torch.ones(2, 4)).square().sum().backward()
    for found, expected in zip(gradients(net), plain_gradients(2), strict=True):
        torch.testing.assert_close(found, expected, rtol=5e-3, atol=5e-3)


def test_gradients_too_small_for_float16_survive(scaled):
    net, *_ = scaled
    (net(torch.ones(2, 4)).sum() * 1e-8).backward()
    assert net[0].weight.grad.abs().max() > 1e-10


def test_leaves_outside_of_any_module_get_true_gradients(scaled):
    net, *_ = scaled
    temperature = torch.tensor(2.0, requires_grad=True)
    inputs = torch.ones(1, 4, requires_grad=True)
    (net(inputs).sum() * 0 + temperature * 3.0).backward()
    assert temperature.grad.item() == 3.0
    assert inputs.grad.abs().max().item() == 0.0


def test_regularisation_outside_of_the_model_is_not_scaled(scaled):
    net, *_ = scaled
    (net(torch.ones(1, 4)).sum() * 0 + net[0].weight.square().sum()).backward()
    torch.testing.assert_close(net[0].weight.grad, 2 * net[0].weight.detach())


def test_gradients_given_to_backward_are_scaled_too(scaled):
    net, *_ = scaled
    output = net(torch.ones(2, 4))
    torch.autograd.backward([output], grad_tensors=[torch.full_like(output, 3.0)])
    expected = make()
    expected(torch.ones(2, 4)).backward(torch.full((2, 1), 3.0))
    for found, wanted in zip(gradients(net), gradients(expected), strict=True):
        torch.testing.assert_close(found, wanted, rtol=5e-3, atol=5e-3)


def test_a_backward_inside_a_backward_is_scaled_once():
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = make()

        def forward(self, x):
            return checkpoint(self.net, x, use_reentrant=True)

    net = Checkpointed()
    with FakeSite(net) as site:
        apply(site, FLOAT16)
        net(torch.ones(2, 4, requires_grad=True)).square().sum().backward()
    for found, expected in zip(gradients(net), plain_gradients(), strict=True):
        torch.testing.assert_close(found, expected, rtol=5e-3, atol=5e-3)


def test_gradients_by_autograd_grad_are_left_alone(scaled):
    net, *_ = scaled
    (found,) = torch.autograd.grad(net(torch.ones(2, 4)).square().sum(), [net[2].bias])
    torch.testing.assert_close(found, plain_gradients()[-1], rtol=5e-3, atol=5e-3)


def test_an_overflow_changes_neither_weights_nor_state_and_halves_the_scale(scaled):
    net, optimizer, _, scaling = scaled
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    weights, state = copy.deepcopy(list(net.parameters())), copy.deepcopy(optimizer.state_dict())
    (net(torch.ones(2, 4)).sum() * 1e6).backward()
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), weights, strict=True))
    assert [s["step"] for s in optimizer.state_dict()["state"].values()] == [s["step"] for s in state["state"].values()]
    assert net[0].weight.grad is not None
    assert scaling.num_skipped == 1
    assert scaling.scale == INITIAL_SCALE / 2


def test_the_scale_grows_after_many_good_steps(scaled, monkeypatch):
    monkeypatch.setattr("fulltilt.techniques.precision.loss_scaling.GROWTH_INTERVAL", 3)
    net, optimizer, _, scaling = scaled
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.ones(2, 4)).mean().backward()
        optimizer.step()
    assert scaling.scale == INITIAL_SCALE * 2


def test_parameters_are_saved_and_copied_without_hooks_or_warnings(scaled):
    net, *_ = scaled
    torch.save(net, io.BytesIO())
    assert not copy.deepcopy(net)[0].weight._backward_hooks


def test_a_scaler_of_the_script_is_respected():
    scaler = torch.amp.GradScaler("cpu")
    net = make()
    with FakeSite(net) as site:
        result = apply(site, FLOAT16)
    assert scaler.is_enabled()
    assert isinstance(result, NoEffect)
    assert "scales its loss itself" in result.reason

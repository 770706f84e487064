"""Kinds of models and scripts that autocast breaks: they stay right, or the technique steps aside and says why."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

from fulltilt.techniques.precision.apply import apply
from fulltilt.techniques.precision.loss_scaling import LossScaling
from fulltilt.techniques.precision.spec import PrecisionOptions
from fulltilt.testing.fake_site import FakeSite

BFLOAT16, FLOAT16 = PrecisionOptions(), PrecisionOptions(dtype="float16")
OPTIONS = pytest.mark.parametrize("options", [BFLOAT16, FLOAT16], ids=["bfloat16", "float16"])


class Net(nn.Module):
    """Two layers with something of its own in between."""

    def __init__(self, between=lambda net, h: h):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.between = between
        self.calls = 0
        self.register_buffer("table", torch.arange(2048).float())
        self.register_buffer("turns", torch.polar(torch.ones(8), torch.arange(8.0)))

    def forward(self, x):
        self.calls += 1
        return self.last(self.between(self, self.first(nn.functional.dropout(self.norm(x), 0.1, self.training))))


def train(net, num_steps=2, rate=0.01):
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    losses = []
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss = net(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def under(options, net, **settings):
    with FakeSite(net) as site:
        result = apply(site, options)
        losses = train(net, **settings)
        proof = result.engaged()
    return losses, site.notes, proof


def put(net, h):
    out = torch.zeros(4, 8)
    out[torch.arange(4)] = h
    return out


def put_where(net, h):
    out = torch.zeros(4, 8)
    out[torch.tensor([True, False, True, True])] = h[:3]
    return out


def interpolate(net, h):
    return torch.lerp(torch.zeros(4, 8), h, 0.5)


def numpy_inside(net, h):
    return h * float(h.detach().numpy().mean()) if h.dtype != torch.float16 else put(net, h)


def insists(net, h):
    assert h.dtype == torch.float32
    return h


def raises_its_own(net, h):
    if h.dtype != torch.float32:
        raise ValueError("float32, please")
    return h


def lowest(net, h):
    return h.masked_fill(torch.eye(8)[:4] > 0, torch.finfo(torch.float32).min).softmax(-1)


REFUSING = [put, put_where, interpolate, numpy_inside, insists, raises_its_own, lowest]


@OPTIONS
@pytest.mark.parametrize("between", REFUSING, ids=lambda function: function.__name__)
@pytest.mark.parametrize("begins", [1, 3], ids=["at once", "in the third call"])
def test_what_refuses_half_precision_runs_in_float32_from_then_on(options, between, begins):
    """Statistics are counted and random numbers drawn once a step, also in the step where it is taken back."""

    def from_then_on(net, h):
        return between(net, h) if net.norm.num_batches_tracked >= begins else h

    expected_net, net = Net(from_then_on), Net(from_then_on)
    expected = train(expected_net, num_steps=5)
    losses, notes, proof = under(options, net, num_steps=5)
    assert losses == pytest.approx(expected, rel=0.05)
    assert net.norm.num_batches_tracked.item() == 5
    torch.testing.assert_close(net.norm.running_mean, expected_net.norm.running_mean)
    assert ["back to float32" in note for note in notes] == [True]
    assert proof is None


def complex_buffer(net, h):
    return torch.view_as_real(h * net.turns).sum(-1)


def inverse(net, h):
    return h @ torch.inverse(h.t() @ h + 10 * torch.eye(8))


def cholesky(net, h):
    return h @ torch.linalg.cholesky(h.t() @ h + 10 * torch.eye(8))


def solve(net, h):
    return torch.linalg.solve(h.t() @ h + 10 * torch.eye(8), h.t()).t()


def own_loss(net, h):
    target = torch.full((4, 8), 0.3)
    return h * nn.functional.binary_cross_entropy(torch.sigmoid(h), target)


def slice_is_written(net, h):
    out = torch.zeros(4, 8)
    out[:, :8] = h
    return out


def added_in_place(net, h):
    out = torch.zeros(4, 8)
    out += h
    return out


def float64_inside(net, h):
    return (h.double() + net.table[:8].double()).float() / 8


def average_is_kept(net, h):
    net.table[:4].mul_(0.9).add_(h.detach()[:, 0], alpha=0.1)
    return h


FINE = [
    complex_buffer, inverse, cholesky, solve, own_loss, slice_is_written, added_in_place, float64_inside,
    average_is_kept,
]  # fmt: skip


@OPTIONS
@pytest.mark.parametrize("between", FINE, ids=lambda function: function.__name__)
def test_what_autocast_leaves_in_float32_stays_right(options, between):
    expected = train(Net(between))
    losses, notes, proof = under(options, Net(between))
    assert losses == pytest.approx(expected, rel=0.05)
    assert notes == []
    assert "2 calls" in proof


@OPTIONS
@pytest.mark.parametrize(
    "prepare",
    [
        lambda layer: parametrizations.spectral_norm(layer),
        lambda layer: parametrizations.weight_norm(layer),
        lambda layer: parametrizations.orthogonal(layer),
        lambda layer: nn.utils.spectral_norm(layer),
        lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
    ],
    ids=["spectral_norm", "weight_norm", "orthogonal", "old spectral_norm", "pruned"],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_parametrised_layers_train(options, prepare):
    def make():
        net = Net()
        torch.manual_seed(2)  # spectral_norm draws
        prepare(net.first)
        return net

    net, expected = make(), make()
    assert under(options, net)[0] == pytest.approx(train(expected), rel=0.05)
    assert parametrize.is_parametrized(net.first) == parametrize.is_parametrized(expected.first)
    for found, wanted in zip(net.state_dict().values(), expected.state_dict().values(), strict=True):
        assert found.dtype == wanted.dtype


def test_tables_are_never_touched():
    net = Net()
    positions = torch.arange(2048).float()
    under(BFLOAT16, net)
    assert net.table.dtype == torch.float32
    assert torch.equal(net.table, positions)
    assert {parameter.dtype for parameter in net.parameters()} == {torch.float32}


def left_in_an_attribute(net, h):
    net.features = h
    return h


def left_in_a_list(net, h):
    net.features = [h]
    return h


def left_in_a_dict(net, h):
    net.features = {"h": h}
    return h


def left_in_a_buffer(net, h):
    net.table = h.detach().sum(0)
    return h


@OPTIONS
@pytest.mark.parametrize(
    "leave", [left_in_an_attribute, left_in_a_list, left_in_a_dict, left_in_a_buffer], ids=lambda f: f.__name__
)
def test_what_the_model_leaves_behind_is_float32_after_each_call(options, leave):
    net = Net(leave)
    with FakeSite(net) as site:
        apply(site, options)
        for training in (True, True, False, False):
            net.train(training)
            net(torch.randn(4, 8))
            found = getattr(net, "features", net.table)
            (tensor,) = found if isinstance(found, list) else found.values() if isinstance(found, dict) else [found]
            assert tensor.dtype == torch.float32
            if tensor is not net.table:
                tensor.sum().backward()  # an auxiliary loss
                assert net.first.weight.grad.isfinite().all()


def test_half_tensors_of_the_scripts_own_stay_half():
    net = Net()
    net.cache = torch.ones(2, dtype=torch.bfloat16)
    under(BFLOAT16, net)
    assert net.cache.dtype == torch.bfloat16


@OPTIONS
def test_numpy_works_on_what_the_model_gives_in_validation_too(options):
    net = Net()
    with FakeSite(net) as site:
        apply(site, options)
        train(net)
        net.eval()
        for context in (torch.no_grad, torch.inference_mode):
            with context():
                assert isinstance(net(torch.randn(4, 8)).numpy(), np.ndarray)


def normalised(net, h):
    return nn.functional.normalize(h * 0 + 1e-9, eps=1e-12)


def test_an_epsilon_that_float16_does_not_hold_is_found_in_the_first_call_and_named():
    class Normalise(nn.Module):
        def forward(self, h):
            return normalised(self, h)

    def make():
        net = Net(lambda net, h: net.normalise(h))
        net.normalise = Normalise()
        return net

    net = make()
    losses, notes, proof = under(FLOAT16, net)
    assert losses == train(make())
    assert net.norm.num_batches_tracked.item() == 2
    assert ["normalise (Normalise)" in note for note in notes] == [True]
    assert proof is None
    assert under(BFLOAT16, Net(normalised))[2] is not None


def test_infinities_of_the_scripts_own_are_no_reason():
    def masked(net, h):
        return h

    class Masked(Net):
        def forward(self, x):
            return super().forward(x).masked_fill(torch.eye(8)[:4] > 0, -torch.inf)

    net = Masked(masked)
    with FakeSite(net) as site:
        result = apply(site, FLOAT16)
        net(torch.randn(4, 8)).softmax(-1)[0, 1].backward()
        net(torch.randn(4, 8))
        assert site.notes == []
        assert result.engaged() is not None


def test_gradients_that_are_never_finite_end_float16_and_not_the_training():
    def spoilt(net, h):
        return h

    def run(options=None):
        net = Net(spoilt)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        with FakeSite(net, optimizer) as site:
            if options:
                apply(site, options)
            for _ in range(16):
                optimizer.zero_grad()
                (net(torch.ones(4, 8)).sum() * 3e5).backward()
                optimizer.step()
        return net, site

    net, site = run(FLOAT16)
    assert ["back to float32" in note for note in site.notes] == [True]
    assert "gradient of Net#0." in site.notes[0]
    assert not torch.equal(net.last.weight, Net(spoilt).last.weight)


@pytest.mark.parametrize("cls", [torch.optim.SGD, torch.optim.AdamW, torch.optim.LBFGS])
def test_an_optimizer_with_a_closure_ends_float16(cls):
    """An overflow inside of its step could not be skipped, and would be in the weights."""
    net = Net().eval()
    optimizer = cls(net.parameters(), lr=1e-7)

    def closure():
        optimizer.zero_grad()
        loss = net(torch.ones(4, 8)).square().sum() * 1e6
        loss.backward()
        return loss

    with FakeSite(net) as site:  # the optimizer appears after the model
        apply(site, FLOAT16)
        for _ in range(2):
            optimizer.step(closure)
        net(torch.ones(4, 8))
    assert all(parameter.isfinite().all() for parameter in net.parameters())
    assert ["back to float32" in note for note in site.notes] == [True]


@pytest.mark.filterwarnings("error")
def test_a_skipped_first_step_makes_no_scheduler_complain():
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    with FakeSite(net, optimizer) as site:
        apply(site, FLOAT16)
        (net(torch.ones(4, 8)).sum() * 1e9).backward()
        optimizer.step()
        scheduler.step()
    assert LossScaling.of_process(site).num_skipped == 1
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_an_optimizer_whose_parameters_had_no_part_in_the_step_does_nothing():
    net, other = Net(), Net()
    optimizers = torch.optim.AdamW(net.parameters()), torch.optim.AdamW(other.parameters())
    with FakeSite([net, other], optimizers) as site:
        apply(site, FLOAT16)
        net(torch.randn(4, 8)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), Net().parameters(), strict=True))
    assert len(optimizers[0].state) > 0
    assert len(optimizers[1].state) == 0


@OPTIONS
def test_clipped_and_skipped_updates_are_those_of_float32(options):
    """A rule of the script's on the norm of gradients sees true gradients, and makes the same decisions."""

    def updates(options=None):
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        executed = []
        with FakeSite(net, optimizer) as site:
            if options:
                apply(site, options)
            for step in range(6):
                optimizer.zero_grad()
                torch.manual_seed(step)
                (net(torch.randn(4, 8)).square().mean() * (40 if step % 3 == 2 else 1)).backward()
                norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                if norm < 10:
                    optimizer.step()
                executed.append(bool(norm < 10))
        return executed, net

    expected, plain = updates()
    executed, net = updates(options)
    assert executed == expected
    assert False in executed
    for found, wanted in zip(net.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0.02, atol=0.01)


class OpensItsOwn(Net):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(x).float()


class ClosesIt(Net):
    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return super().forward(x)


@OPTIONS
def test_an_autocast_region_inside_of_the_model_is_the_scripts_business(options):
    net = OpensItsOwn()
    losses, notes, proof = under(options, net)
    assert losses == train(OpensItsOwn())
    assert net.norm.num_batches_tracked.item() == 2
    assert notes == ["precision: OpensItsOwn#0 opens an autocast region of its own, left as it is"]
    assert proof is None
    assert under(options, ClosesIt())[2] is not None


def test_a_scaler_that_the_script_makes_later_is_the_only_one():
    """An overflow is skipped by the script's scaler, so that ours would never hear of it and never back off."""

    def run(options=None):
        net = Net().eval()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        with FakeSite(net, optimizer) as site:
            if options:
                apply(site, options)
            train(net, num_steps=1)
            scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
            for _ in range(4):
                optimizer.zero_grad()
                scaler.scale(net(torch.ones(4, 8)).square().sum()).backward()
                scaler.step(optimizer)
                scaler.update()
        return list(net.parameters()), scaler.get_scale(), site.notes

    before = torch.amp.GradScaler.scale
    expected, expected_scale, _ = run()
    parameters, scale, notes = run(FLOAT16)
    assert scale == expected_scale
    for found, wanted in zip(parameters, expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0.02, atol=0.01)
    assert ["scales its loss itself" in note for note in notes] == [True]
    LossScaling.forget()
    assert torch.amp.GradScaler.scale is before

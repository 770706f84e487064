"""What goes wrong late, or is not the compiler's fault, or takes the model's call apart."""

import os
import subprocess
import sys

import pytest
import torch
import torch._functorch.config
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd

from fulltilt.techniques.compile import session
from fulltilt.techniques.compile.apply import apply
from fulltilt.techniques.compile.guard import MAX_COMPILATIONS
from fulltilt.techniques.compile.spec import CompileOptions
from fulltilt.testing.fake_site import FakeSite

MODEL = CompileOptions(scope="model")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.norm, self.head = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(nn.functional.dropout(torch.tanh(self.norm(self.linear(x))), 0.2, self.training))


class Plain(nn.Module):
    """No random draws, no statistics: compiled and eager give the same."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


def failing_from(number, where):
    """A backend whose graph number `number` (from 1) fails."""
    made = []

    def works(graph, inputs):
        return make_boxed_func(graph)

    def may_fail(graph, inputs):
        made.append(graph)
        if len(made) >= number:
            raise RuntimeError("the compiler is gone")
        return make_boxed_func(graph)

    compilers = {"forward": (may_fail, works), "backward": (works, may_fail)}[where]
    return aot_autograd(fw_compiler=compilers[0], bw_compiler=compilers[1])


def train(net, sizes, retain_from=None):
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses, outputs = [], []
    for step, size in enumerate(sizes):
        output = net(torch.randn(size, 4))
        loss = output.square().mean()
        optimizer.zero_grad()
        if retain_from is not None and step >= retain_from:
            loss.backward(retain_graph=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        outputs.append(output)
    return [*losses, *(output.sum().item() for output in outputs), torch.rand(1).item()]


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_failure_at_whatever_compilation_counts_statistics_and_draws_once(use_backend, where, number):
    sizes = [8, 8, 8, 6, 6]  # the fourth step compiles again
    expected_net, net = Net(), Net()
    expected = train(expected_net, sizes)
    use_backend(failing_from(number, where))
    site = FakeSite(net)
    apply(site, CompileOptions(scope="model", dynamic=False))
    assert train(net, sizes) == pytest.approx(expected)
    assert net.norm.num_batches_tracked.item() == len(sizes)
    torch.testing.assert_close(net.norm.running_mean, expected_net.norm.running_mean)
    assert ["the compiler is gone" in note for note in site.notes] == [True]


def test_a_failure_when_it_is_wrapped_leaves_the_model_eager(monkeypatch):
    def not_here(*args, **kwargs):
        raise RuntimeError("torch.compile is not supported here")

    monkeypatch.setattr(torch, "compile", not_here)
    net = Plain()
    site = FakeSite(net)
    result = apply(site, MODEL)
    assert train(net, [8, 8]) == train(Plain(), [8, 8])
    assert result.engaged() is None
    assert ["not supported here" in note for note in site.notes] == [True]


def test_an_error_of_the_script_that_it_catches_leaves_the_unit_compiled(use_backend):
    """A script may try batch sizes or shapes until one fits."""
    net = Plain()
    site = FakeSite(net)
    result = apply(site, MODEL)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            net(torch.randn(2, 5))
    train(net, [8, 8])
    assert result.engaged().endswith("2 compiled calls")
    assert site.notes == []


def test_a_graph_may_be_kept_from_step_30_on(use_backend):
    net = Plain()
    apply(FakeSite(net), MODEL)
    assert train(net, [8] * 33, retain_from=30) == pytest.approx(train(Plain(), [8] * 33, retain_from=30))


def test_a_second_backward_without_a_kept_graph_is_the_scripts_own_error(use_backend):
    net = Plain()
    apply(FakeSite(net), MODEL)
    loss = net(torch.randn(8, 4)).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        loss.backward()


def test_two_models_may_feed_one_loss_and_outputs_may_be_kept(use_backend):
    def losses(first, second):
        kept = []
        for step in range(4):
            x = torch.full((2, 4), step / 4)
            first_output, second_output = first(x), second(x)
            (first_output * second_output).sum().backward()
            kept.append(first_output)
        return [*(output.sum().item() for output in kept), second.first.weight.grad.sum().item()]

    models = Plain(), Plain()
    for model in models:
        apply(FakeSite(model), MODEL)
    assert losses(*models) == pytest.approx(losses(Plain(), Plain()))


class Counting(Plain):
    count = 0

    def forward(self, x):
        self.count += 1
        return super().forward(x) * (self.count % 2 + 1)


class Limited(Plain):
    limits = iter(range(100))

    def forward(self, x, info):
        return super().forward(x) * (2 if info["max_len"] in (1, 3, 5, 7, 8, 9, 11) else 1)


@pytest.mark.parametrize("limit_is_an_argument", [True, False])
@pytest.mark.parametrize(
    ("cls", "arguments"),
    [(Counting, lambda step: ()), (Limited, lambda step: ({"max_len": step},))],
    ids=["a counter on the module", "an int in a dict"],
)
def test_a_storm_of_compilations_ends_in_eager_and_one_note(
    use_backend, monkeypatch, capfd, cls, arguments, limit_is_an_argument
):
    """pytorch's own limit would leave it looking through what it has compiled, at every call."""
    if limit_is_an_argument and not session._LIMIT_IS_AN_ARGUMENT:
        pytest.skip("this torch takes no limit")
    monkeypatch.setattr(session, "_LIMIT_IS_AN_ARGUMENT", limit_is_an_argument)
    net, expected = cls(), cls()
    site = FakeSite(net)
    apply(site, CompileOptions(scope="model", dynamic=False))
    for step in range(MAX_COMPILATIONS + 6):
        x = torch.full((2, 4), float(step))
        torch.testing.assert_close(net(x, *arguments(step)), expected(x, *arguments(step)))
    assert ["vary too much" in note for note in site.notes] == [True]
    assert net._compiled_call_impl is None
    assert "recompile_limit" not in capfd.readouterr().err


def test_hooks_that_keep_a_list_still_see_every_call(use_backend):
    net = Plain()
    site = FakeSite(net)
    apply(site, MODEL)
    net(torch.ones(2, 4))
    seen = []
    net.first.register_forward_hook(lambda module, args, output: seen.append(output.sum().item()))
    for _ in range(MAX_COMPILATIONS + 4):
        net(torch.ones(2, 4))
    assert len(seen) == MAX_COMPILATIONS + 4
    assert len(site.notes) <= 1


def forward_mode(net, x):
    with torch.autograd.forward_ad.dual_level():
        dual = net(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))
        return torch.autograd.forward_ad.unpack_dual(dual).tangent


def per_sample_gradients(net, x):
    parameters = {name: parameter.detach() for name, parameter in net.named_parameters()}

    def loss(parameters, sample):
        return torch.func.functional_call(net, parameters, (sample[None],)).square().sum()

    return torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)["first.weight"]


def functional_hessian(net, x):
    return torch.func.hessian(lambda x: net(x).sum())(x)


def traced(net, x):
    return torch.jit.trace(net, x, check_trace=False)(x)


@pytest.mark.parametrize("transform", [forward_mode, per_sample_gradients, functional_hessian, traced])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_transforms_of_the_model_run_eager_and_the_rest_stays_compiled(use_backend, transform):
    x = torch.randn(3, 4)
    net = Plain()
    with FakeSite(net) as site:
        result = apply(site, MODEL)
        net(x).sum().backward()
        torch.testing.assert_close(transform(net, x), transform(Plain(), x))
        net(x).sum().backward()
        assert result.engaged().endswith("2 compiled calls")
    assert site.notes == []


def test_a_second_derivative_that_nobody_foresaw_is_refused_and_not_zero(use_backend):
    """The input is no leaf here; by itself, torch returns zeros."""
    net = Plain()
    x = torch.randn(2, 4)

    def second_derivative():
        return torch.autograd.functional.hessian(lambda x: net(x).sum(), x)

    expected = second_derivative()
    assert expected.abs().max() > 0
    with FakeSite(net) as site:
        apply(site, MODEL)
        net(x).sum().backward()
        with pytest.raises(RuntimeError, match=r"fulltilt: .*no second derivative"):
            second_derivative()
        torch.testing.assert_close(second_derivative(), expected)


def test_nothing_stays_set_when_no_unit_ever_ran(use_backend):
    before = torch._functorch.config.donated_buffer
    use_backend(failing_from(1, "forward"))
    nets = Plain(), Plain()
    for net in nets:
        apply(FakeSite(net), MODEL)
    for net in nets:
        net(torch.randn(2, 4))
    assert torch._functorch.config.donated_buffer is before


@pytest.mark.slow
def test_inductor_itself_is_taken_back_in_a_later_compilation(tmp_path):
    """The C++ compiler disappears between the first compilation and the second."""
    program = """
import os, sys, torch
from torch import nn
from fulltilt.techniques.compile.apply import apply
from fulltilt.techniques.compile.spec import CompileOptions
from fulltilt.testing.fake_site import FakeSite
def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh())
net, plain = make(), make()
site = FakeSite(net)
result = apply(site, CompileOptions(scope="model", dynamic=False))
for step, size in enumerate([4, 4, 6, 6]):
    x = torch.full((size, 4), 0.1) + torch.arange(size)[:, None]
    if step == 2:
        import torch._inductor.config as config, torch._inductor.cpp_builder as builder
        builder.get_cpp_compiler.cache_clear() if hasattr(builder.get_cpp_compiler, "cache_clear") else None
        os.environ["CXX"] = "no-such-compiler"; config.cpp.cxx = ("no-such-compiler",)
        from torch._inductor.codecache import CppCodeCache
        CppCodeCache.cache_clear()
    a, b = net(x), plain(x)
    torch.testing.assert_close(a, b)
    a.sum().backward(); b.sum().backward()
assert net[1].num_batches_tracked.item() == 4
torch.testing.assert_close(net[1].running_var, plain[1].running_var)
print(len(site.notes), *site.notes)
"""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 compile: Sequential#0 runs eager"), done.stdout

import copy
import gc
import os
import subprocess
import sys
import weakref

import pytest
import torch
import torch._dynamo.config
import torch._functorch.config
from torch import nn
from torch._dynamo.backends.common import aot_autograd

from fulltilt.technique import Applied, NoEffect
from fulltilt.techniques.compile import session
from fulltilt.techniques.compile.apply import apply, units_of
from fulltilt.techniques.compile.guard import MAX_COMPILATIONS
from fulltilt.techniques.compile.spec import CompileOptions
from fulltilt.testing.fake_site import FakeSite

MODEL = CompileOptions(scope="model")


class Block(nn.Module):
    def __init__(self, index=0):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.index = index

    def forward(self, x):
        return x + torch.nn.functional.dropout(self.norm(self.linear(x)), 0.1, self.training) * (self.index + 1)


class Net(nn.Module):
    def __init__(self, num_blocks=2):
        super().__init__()
        self.blocks = nn.ModuleList(Block(index) for index in range(num_blocks))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def make(num_blocks=2):
    torch.manual_seed(0)
    return Net(num_blocks)


def fails(graph, inputs):
    raise RuntimeError("no compiler here")


def passes(graph, inputs):
    return graph


def train_step(net, batch):
    torch.manual_seed(5)
    loss = net(batch).square().mean()
    loss.backward()
    return loss.item(), [p.grad.clone() for p in net.parameters()], copy.deepcopy(dict(net.named_buffers()))


@pytest.mark.parametrize(
    "backend",
    [fails, aot_autograd(fw_compiler=fails), aot_autograd(fw_compiler=passes, bw_compiler=fails)],
    ids=["dynamo", "forward", "backward"],
)
def test_a_failing_backend_leaves_the_eager_numbers_and_one_note(use_backend, backend):
    batch = torch.randn(8, 4)
    expected = train_step(make(), batch)
    use_backend(backend)
    net = make()
    site = FakeSite(net)
    result = apply(site, MODEL)
    loss, gradients, buffers = train_step(net, batch)
    assert loss == expected[0]
    assert all(torch.equal(a, b) for a, b in zip(gradients, expected[1], strict=True))
    assert all(torch.equal(buffers[name], value) for name, value in expected[2].items())
    net(batch)
    assert result.engaged() is None
    assert len(site.notes) == 1
    assert "runs eager" in site.notes[0]


def test_settings_of_the_compiler_are_what_they_were(use_backend):
    session.prepare()
    before = torch._dynamo.config.get_config_copy(), torch._functorch.config.get_config_copy()
    for backend in (fails, "aot_eager"):
        use_backend(backend)
        net = make()
        apply(FakeSite(net), MODEL)
        net(torch.randn(8, 4)).sum().backward()
        assert (torch._dynamo.config.get_config_copy(), torch._functorch.config.get_config_copy()) == before


def test_a_failure_does_not_harm_the_next_unit(use_backend):
    use_backend(fails)
    first = make()
    apply(FakeSite(first), MODEL)
    first(torch.randn(8, 4))
    use_backend("aot_eager")
    second = make()
    result = apply(FakeSite(second), MODEL)
    second(torch.randn(8, 4)).sum().backward()
    assert result.engaged() is not None


def test_an_error_of_the_script_comes_out_as_it_is(use_backend):
    class Broken(Block):
        def forward(self, x):
            return self.linear(torch.cat([x, x], 1))

    class Raising(Block):
        def forward(self, x):
            raise KeyError("mine")

    for cls, error in ((Broken, "shapes cannot be multiplied"), (Raising, "mine")):
        net = cls()
        apply(FakeSite(net), MODEL)
        with pytest.raises((RuntimeError, KeyError), match=error) as caught:
            net(torch.randn(2, 4))
        assert type(caught.value) in (RuntimeError, KeyError)


def test_graphs_and_calls_are_the_proof(use_backend):
    net = make()
    result = apply(FakeSite(net), CompileOptions())
    assert isinstance(result, Applied)
    assert result.engaged() is None
    for _ in range(3):
        net(torch.randn(8, 4)).sum().backward()
    assert result.engaged().endswith("6 compiled calls")


def test_a_graph_may_be_kept_for_a_second_backward(use_backend):
    net = make()
    apply(FakeSite(net), MODEL)
    loss = net(torch.randn(8, 4)).square().sum()
    loss.backward(retain_graph=True)
    first = net.blocks[0].linear.weight.grad.clone()
    loss.backward()
    torch.testing.assert_close(net.blocks[0].linear.weight.grad, 2 * first)


@pytest.mark.parametrize("options", [MODEL, CompileOptions()], ids=["model", "regions"])
def test_a_call_whose_input_is_differentiated_runs_eager(use_backend, options):
    net = nn.Sequential(*(nn.Sequential(nn.Linear(1, 1), nn.Tanh()) for _ in range(2)))
    with FakeSite(net) as site:
        result = apply(site, options)
        x = torch.ones(4, 1, requires_grad=True)
        (first,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        first.square().sum().backward()
        assert result.engaged() is None
        assert len(site.notes) == 1
        net(torch.ones(4, 1))
        assert result.engaged() is not None


def test_a_unit_that_is_never_called_proves_nothing(use_backend):
    class Bypassed(Net):
        def training_loss(self, x):
            return self.blocks[0].linear(x).sum()

    net = Bypassed()
    result = apply(FakeSite(net), MODEL)
    net.training_loss(torch.randn(8, 4)).backward()
    assert result.engaged() is None


def test_blocks_that_differ_in_a_number_are_all_compiled(use_backend):
    net = make(num_blocks=10)
    result = apply(FakeSite(net), CompileOptions())
    net(torch.randn(8, 4)).sum().backward()
    graphs = int(result.engaged().split()[0])
    assert graphs >= 10


def test_hooks_registered_after_the_first_call_run_also_when_it_was_compiled_again(use_backend):
    net = make()
    apply(FakeSite(net), MODEL)
    net(torch.randn(8, 4))
    net(torch.randn(6, 4))
    calls = []
    net.register_forward_hook(lambda module, args, output: calls.append("root"))
    net.blocks[1].linear.register_forward_hook(lambda module, args, output: calls.append("linear"))
    net(torch.randn(6, 4))
    net(torch.randn(5, 4))
    assert calls == ["linear", "root"] * 2


def test_arguments_that_vary_too_much_end_in_eager(use_backend):
    class Padded(Block):
        def forward(self, x, length):
            return super().forward(x) if length % 2 else self.linear(x) + length

    net = Padded()
    site = FakeSite(net)
    result = apply(site, CompileOptions(scope="model", dynamic=False))
    for length in range(MAX_COMPILATIONS + 4):
        net(torch.randn(2 + length, 4), length)
    assert result.engaged() is None
    assert "vary too much" in site.notes[0]
    assert net._compiled_call_impl is None


def test_the_model_stays_itself(use_backend):
    net = make()
    keys = list(net.state_dict())
    apply(FakeSite(net), MODEL)
    net(torch.randn(8, 4))
    assert type(net) is Net
    assert list(net.state_dict()) == keys
    assert copy.deepcopy(net)._compiled_call_impl is None


def test_a_model_that_the_script_drops_is_freed(use_backend):
    net = make()
    result = apply(FakeSite(net), CompileOptions())
    with torch.no_grad():
        net(torch.randn(8, 4))
    gone = weakref.ref(net)
    del net
    torch._dynamo.reset()
    gc.collect()
    assert gone() is None
    assert result.engaged() is not None


def test_what_the_script_compiled_itself_is_left_alone():
    net = make()
    net.blocks[0].compile(backend="eager")
    assert "compiled already" in apply(FakeSite(net), MODEL).reason
    wrapped = torch.compile(make(), backend="eager")
    assert "compiled already" in apply(FakeSite(wrapped), MODEL).reason


def test_no_blocks_and_no_parameters_are_reasons():
    assert isinstance(apply(FakeSite(nn.Linear(2, 2)), MODEL), NoEffect)
    assert isinstance(apply(FakeSite(Block()), CompileOptions()), NoEffect)
    assert isinstance(apply(FakeSite(nn.MSELoss()), MODEL), NoEffect)


def test_regions_are_the_outermost_blocks_of_one_class():
    class Stage(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(Block(), Block())

    net = nn.Module()
    net.stem = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU(), nn.ReLU())
    net.stages = nn.ModuleList([Stage(), Stage()])
    net.single = Stage()
    names = [unit.name for unit in units_of({"root": net}, "regions")]
    assert names == ["root.stages.0", "root.stages.1", "root.single.layers.0", "root.single.layers.1"]


@pytest.mark.slow
def test_a_missing_compiler_falls_back(tmp_path):
    program = """
import torch
from torch import nn
from fulltilt.techniques.compile.apply import apply
from fulltilt.techniques.compile.spec import CompileOptions
from fulltilt.testing.fake_site import FakeSite
net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
expected = net(torch.ones(1, 4))
site = FakeSite(net)
result = apply(site, CompileOptions(scope="model"))
assert torch.equal(net(torch.ones(1, 4)), expected)
assert result.engaged() is None
print(*site.notes)
"""
    environment = {**os.environ, "CXX": "no-such-compiler", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("runs eager") == 1

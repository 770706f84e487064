import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from fulltilt.technique import Applied, NoEffect
from fulltilt.techniques.precision.apply import apply
from fulltilt.techniques.precision.spec import PrecisionOptions
from fulltilt.testing.fake_site import FakeSite


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.seen = None

    def forward(self, x):
        y = self.linear(x)
        self.seen = y.dtype
        return y


@pytest.fixture
def enter():
    sites = []

    def enter(modules, optimizers=()):
        site = FakeSite(modules, optimizers).__enter__()
        sites.append(site)
        return site

    yield enter
    for site in sites:
        site.__exit__(None, None, None)


def test_the_script_gets_float32_in_training_and_in_evaluation(enter):
    net = Net()
    result = apply(enter(net), PrecisionOptions())
    assert net(torch.ones(1, 4)).dtype == torch.float32
    assert net.seen == torch.bfloat16
    net.eval()
    with torch.no_grad():
        assert isinstance(net(torch.ones(1, 4)).numpy(), np.ndarray)
    assert net.seen == torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")
    assert result.engaged() == "2 calls in torch.bfloat16"


def test_a_half_tensor_that_is_handed_through_stays_half(enter):
    class Through(Net):
        def forward(self, x, extra):
            return super().forward(x), extra

    net = Through()
    apply(enter(net), PrecisionOptions())
    given = torch.ones(1, dtype=torch.bfloat16)
    output, extra = net(torch.ones(1, 4), given)
    assert extra is given
    assert output.dtype == torch.float32


def test_the_autocast_of_the_script_is_left_as_it_is(enter):
    net = Net()
    site = enter(net)
    result = apply(site, PrecisionOptions())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert net(torch.ones(1, 4)).dtype == torch.bfloat16
    assert result.engaged() is None
    assert ["own autocast" in note for note in site.notes] == [True]


def test_a_model_that_the_script_puts_into_half_precision_later_is_left_as_it_is(enter):
    net = Net()
    site = enter(net)
    apply(site, PrecisionOptions())
    net(torch.ones(1, 4))
    net.bfloat16()
    assert net(torch.ones(1, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert len(site.notes) == 1


def test_weights_cast_in_one_step_are_not_used_in_the_next(enter):
    net = Net()
    apply(enter(net), PrecisionOptions())
    first = net(torch.ones(1, 4))
    with torch.no_grad():
        net.linear.weight.add_(1.0)
    assert (net(torch.ones(1, 4)) - first).min() > 3.9


def test_a_pass_without_gradients_does_not_take_those_of_the_next_layer_away(enter):
    class Teacher(Net):
        def forward(self, x):
            with torch.no_grad():
                target = self.linear(x)
            return self.linear(x + 1) - target

    net = Teacher()
    apply(enter(net), PrecisionOptions())
    net(torch.ones(1, 4)).sum().backward()
    assert net.linear.weight.grad is not None


def test_a_call_that_half_precision_breaks_is_made_again_in_float32(enter):
    class Strict(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x):
            y = torch.nn.functional.dropout(self.linear(self.norm(x)))
            if y.dtype != torch.float32:
                raise RuntimeError("not implemented for 'BFloat16'")
            return y

    torch.manual_seed(0)
    expected_net = Strict()
    batch = torch.randn(8, 4)
    torch.manual_seed(1)
    expected = expected_net(batch)

    torch.manual_seed(0)
    net = Strict()
    site = enter(net)
    result = apply(site, PrecisionOptions())
    torch.manual_seed(1)
    output = net(batch)
    assert torch.equal(output, expected)
    assert net.norm.num_batches_tracked.item() == 1
    assert result.engaged() is None
    assert len(site.notes) == 1
    assert "back to float32" in site.notes[0]


def test_an_error_of_the_script_comes_out_as_it_is(enter):
    class Broken(Net):
        def forward(self, x):
            raise RuntimeError("mine")

    net = Broken()
    site = enter(net)
    apply(site, PrecisionOptions())
    with pytest.raises(RuntimeError, match=r"^mine$"):
        net(torch.ones(1, 4))
    assert site.notes == []


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: nn.Linear(2, 2).double(), "float64"),
        (lambda: nn.Linear(2, 2).bfloat16(), "half precision already"),
        (lambda: nn.Linear(2, 2, dtype=torch.complex64), "complex"),
        (lambda: nn.MSELoss(), "no parameters"),
        (lambda: nn.Embedding(4, 2), "no weights of matrix products"),
    ],
)
def test_a_reason_is_given_where_it_does_not_fit(enter, make, reason):
    result = apply(enter(make()), PrecisionOptions())
    assert isinstance(result, NoEffect)
    assert reason in result.reason


def test_a_table_that_is_tied_to_the_head_counts_as_a_product(enter):
    head = nn.Linear(2, 4, bias=False)
    table = nn.Embedding(4, 2)
    head.weight = table.weight
    assert isinstance(apply(enter(nn.Sequential(table, head)), PrecisionOptions()), Applied)


def test_a_model_that_the_script_drops_is_freed(enter):
    net = Net()
    with FakeSite(net) as site:
        result = apply(site, PrecisionOptions())
        net(torch.ones(1, 4))
        site.modules.clear()
    gone = weakref.ref(net)
    del net, site
    gc.collect()
    assert gone() is None
    assert result.engaged() == "1 calls in torch.bfloat16"

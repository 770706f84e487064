import pytest
import torch
from torch import nn

from fulltilt.techniques.precision import islands
from fulltilt.techniques.precision.apply import apply
from fulltilt.techniques.precision.spec import PrecisionOptions
from fulltilt.testing.fake_site import FakeSite


class ScaledLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, scale):
        ctx.save_for_backward(x, weight)
        ctx.scale = scale
        return x @ weight.t() * scale

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight * ctx.scale, grad.t() @ x * ctx.scale, None


class Willing(ScaledLinear):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x, weight, scale):
        return ScaledLinear.forward(ctx, x, weight, scale)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        return ScaledLinear.backward(ctx, grad)


class Detector(nn.Module):
    def __init__(self, function=ScaledLinear):
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.weight = nn.Parameter(torch.randn(8, 4))
        self.first = nn.Linear(4, 4)
        self.out = nn.Linear(8, 1)

    def forward(self, x):
        h = self.function.apply(self.first(x), self.weight, 1.5)
        self.seen = h.dtype
        return torch.sigmoid(self.out(torch.relu(h)))


def train(net, num_steps=3):
    torch.manual_seed(1)
    x = torch.randn(16, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(num_steps):
        loss = nn.functional.binary_cross_entropy(net(x), (x[:, :1] > 0).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_hand_written_function_trains_in_float32_and_is_named_once():
    expected = train(Detector())
    net = Detector()
    with FakeSite(net) as site:
        apply(site, PrecisionOptions())
        losses = train(net)
    assert losses == pytest.approx(expected, abs=0.02)
    assert net.seen == torch.float32
    assert len(site.notes) == 1
    assert "ScaledLinear" in site.notes[0]


def test_without_the_island_its_backward_fails():
    """What the island is for: pytorch#87979."""
    net = Detector()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = net(torch.randn(4, 4)).float()
    with pytest.raises(RuntimeError, match="same dtype"):
        output.sum().backward()


def test_a_function_with_custom_fwd_is_its_authors_business():
    net = Detector(Willing)
    with FakeSite(net) as site:
        apply(site, PrecisionOptions())
        train(net)
    assert net.seen == torch.bfloat16
    assert site.notes == []


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_compiled_code_trains_as_well():
    expected = train(Detector())
    net = Detector()
    net.compile(backend="aot_eager")
    with FakeSite(net) as site:
        apply(site, PrecisionOptions())
        assert train(net) == pytest.approx(expected, abs=0.02)
    torch._dynamo.reset()


def test_removing_it_leaves_torch_as_it_was():
    before = torch.autograd.Function.__dict__["apply"]
    islands.install(lambda message: None)
    islands.install(lambda message: None)
    assert torch.autograd.Function.__dict__["apply"] is not before
    islands.remove()
    assert torch.autograd.Function.__dict__["apply"] is before

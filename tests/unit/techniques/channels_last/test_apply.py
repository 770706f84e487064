import pytest
import torch
from torch import nn

from fulltilt.technique import Applied, NoEffect
from fulltilt.techniques.channels_last.apply import apply
from fulltilt.techniques.channels_last.spec import ChannelsLastOptions
from fulltilt.testing.fake_site import FakeSite


class Net(nn.Module):
    def __init__(self, view):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 16, 2)
        self.view = view

    def forward(self, x):
        h = torch.nn.functional.dropout(self.norm(self.conv(x)), 0.2, self.training)
        return self.head(h.view(h.size(0), -1) if self.view else h.flatten(1))


def is_channels_last(tensor):
    return tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()


def test_weights_are_laid_out_in_place_and_the_numbers_stay():
    expected = Net(view=False).eval()(torch.ones(2, 3, 4, 4))
    net = Net(view=False).eval()
    weight, values = net.conv.weight, net.conv.weight.detach().clone()
    with FakeSite(net) as site:
        result = apply(site, ChannelsLastOptions())
        output = net(torch.ones(2, 3, 4, 4))
    assert net.conv.weight is weight
    assert is_channels_last(weight)
    assert torch.equal(net.state_dict()["conv.weight"], values)
    torch.testing.assert_close(output, expected)
    assert result.engaged() == "1 calls"


def test_a_view_error_in_the_first_call_is_taken_back():
    batch = torch.randn(2, 3, 4, 4)
    plain = Net(view=True)
    torch.manual_seed(1)
    expected = plain(batch)
    net = Net(view=True)
    with FakeSite(net) as site:
        result = apply(site, ChannelsLastOptions())
        torch.manual_seed(1)
        output = net(batch)
        net(batch)
    assert torch.equal(output, expected)
    assert net.norm.num_batches_tracked.item() == 2
    assert net.conv.weight.is_contiguous()
    assert result.engaged() is None
    assert len(site.notes) == 1
    assert "view size" in site.notes[0]


def test_the_script_may_take_a_view_of_what_it_gets():
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 3))
    with FakeSite(net) as site:
        apply(site, ChannelsLastOptions())
        output = net(torch.randn(2, 3, 5, 5))
    assert output.view(2, -1).shape == (2, 18)


def test_an_error_of_the_script_comes_out_as_it_is():
    net = Net(view=False)
    with FakeSite(net) as site:
        apply(site, ChannelsLastOptions())
        with pytest.raises(RuntimeError, match="channels"):
            net(torch.randn(2, 5, 4, 4))


def test_applied_twice_it_says_so():
    net = Net(view=False)
    site = FakeSite(net)
    with site:
        assert isinstance(apply(site, ChannelsLastOptions()), Applied)
        assert isinstance(apply(site, ChannelsLastOptions()), NoEffect)


def test_models_without_2d_convolutions_are_left_alone():
    result = apply(FakeSite(nn.Sequential(nn.Conv1d(2, 2, 1), nn.Linear(2, 2))), ChannelsLastOptions())
    assert isinstance(result, NoEffect)
    assert result.reason == "no 2-D convolutions"

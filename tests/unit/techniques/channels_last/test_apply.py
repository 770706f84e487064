import copy

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


class Sometimes(Net):
    """Takes a view, or insists on the usual layout, from its third call on."""

    def __init__(self, error):
        super().__init__(view=False)
        self.error = error

    def forward(self, x):
        h = self.norm(self.conv(x))
        if self.norm.num_batches_tracked >= 3:
            if self.error is None:
                return self.head(h.view(h.size(0), -1))
            if not h.is_contiguous():
                raise self.error
        return self.head(h.flatten(1))


@pytest.mark.parametrize("error", [None, ValueError("contiguous, please"), AssertionError()])
def test_an_error_in_a_later_call_is_taken_back_too(error):
    def run(options=None):
        net = Sometimes(error)
        torch.manual_seed(1)
        with FakeSite(net) as site:
            if options:
                apply(site, options)
            outputs = [net(torch.randn(2, 3, 4, 4)) for _ in range(5)]
        return net, outputs, site.notes

    expected_net, expected, _ = run()
    net, outputs, notes = run(ChannelsLastOptions())
    torch.testing.assert_close(outputs, expected)
    assert net.norm.num_batches_tracked.item() == 5
    torch.testing.assert_close(net.norm.running_var, expected_net.norm.running_var)
    assert net.conv.weight.is_contiguous()
    assert len(notes) == 1


def test_an_error_of_the_script_leaves_the_layout():
    net = Net(view=False)
    with FakeSite(net) as site:
        result = apply(site, ChannelsLastOptions())
        with pytest.raises(RuntimeError, match="channels"):
            net(torch.randn(2, 5, 4, 4))
        net(torch.randn(2, 3, 4, 4))
        assert site.notes == []
        assert result.engaged() is not None
    assert is_channels_last(net.conv.weight)


def test_feature_maps_left_in_an_attribute_have_the_usual_layout():
    class Keeping(Net):
        def forward(self, x):
            self.features = self.conv(x)
            self.stages = [self.features * 2]
            return self.features.sum()

    net = Keeping(view=False)
    with FakeSite(net) as site:
        apply(site, ChannelsLastOptions())
        for _ in range(2):
            net(torch.randn(2, 3, 4, 4))
            assert net.features.view(2, -1).shape == net.stages[0].view(2, -1).shape


@pytest.mark.parametrize("saver", [False, True], ids=["saved plain", "saved with channels last"])
def test_checkpoints_load_in_both_directions(saver):
    def trained(options, state=None):
        net = Net(view=False).eval()  # dropout draws in the order of memory
        if state:
            net.load_state_dict(state)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        torch.manual_seed(3)
        with FakeSite(net, optimizer) as site:
            if options:
                apply(site, options)
            for _ in range(2):
                optimizer.zero_grad()
                net(torch.randn(2, 3, 4, 4)).sum().backward()
                optimizer.step()
        return net.state_dict()

    first, second = (ChannelsLastOptions(), None) if saver else (None, ChannelsLastOptions())
    found, expected = trained(second, trained(first)), trained(None, trained(None))
    assert list(found) == list(expected)
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value)


@pytest.mark.parametrize("late", [False, True], ids=["before the first step", "after it"])
@pytest.mark.parametrize("fused", [False, True])
def test_an_optimizer_resumed_from_a_checkpoint_updates_the_right_weights(fused, late):
    """torch's fused kernels on the CPU walk through state and weights side by side, whatever their layout."""

    def updated(options=None):
        net = Net(view=False).eval()  # dropout draws in the order of memory
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1, fused=fused)
        if not late:
            optimizer.load_state_dict(copy.deepcopy(resumed))
        with FakeSite(net, optimizer) as site:
            if options:
                apply(site, options)
            torch.manual_seed(2)
            for _ in range(2):
                net(torch.randn(2, 3, 4, 4)).sum().backward()
                optimizer.step()
                if late:
                    optimizer.load_state_dict(copy.deepcopy(resumed))
        return net.conv.weight

    net = Net(view=False).eval()  # dropout draws in the order of memory
    before = torch.optim.Adam(net.parameters(), lr=0.1, fused=fused)
    net(torch.randn(2, 3, 4, 4)).sum().backward()
    before.step()
    resumed = before.state_dict()
    torch.testing.assert_close(updated(ChannelsLastOptions()), updated(), rtol=1e-4, atol=1e-5)

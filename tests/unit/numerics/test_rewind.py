import gc
import random
import weakref

import numpy
import pytest
import torch
from torch import nn

from fulltilt.numerics.rewind import Rewinder, rewind_point


def test_buffers_and_random_streams_go_back():
    norm = nn.BatchNorm1d(2)
    batch = torch.randn(4, 2)
    rewind = rewind_point(norm)
    norm(batch)
    first = torch.rand(1), random.random()
    rewind()
    assert norm.num_batches_tracked.item() == 0
    assert norm.running_mean.tolist() == [0.0, 0.0]
    assert (torch.rand(1), random.random()) == first


def test_a_buffer_that_was_replaced_is_the_old_object_again():
    norm = nn.BatchNorm1d(2)
    buffer = norm.running_mean
    rewind = rewind_point(norm)
    norm.running_mean = torch.ones(2)
    rewind()
    assert norm.running_mean is buffer


class Drawing(nn.Module):
    def __init__(self, draws):
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("table", torch.zeros(2))
        self.draws = draws

    def forward(self, x):
        self.draws()
        return self.norm(x)


DRAWS = {
    "torch": lambda: torch.rand(1).item(),
    "python": random.random,
    "numpy": lambda: numpy.random.rand(),
    "nothing": lambda: 0,
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("num_before", [0, 1, 3])
def test_every_call_can_be_taken_back_and_not_only_the_first(name, num_before):
    net = Drawing(DRAWS[name])
    rewinder = Rewinder(net)
    for _ in range(num_before):
        rewinder.before_call()
        net(torch.randn(4, 2))
        rewinder.call_succeeded()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    rewind = rewinder.before_call()
    drawn = [draw() for draw in DRAWS.values()]
    rewind()
    rewind = rewinder.before_call()
    net(torch.randn(4, 2))
    rewind()
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert drawn[list(DRAWS).index(name)] == DRAWS[name]()


def test_only_the_first_call_in_a_mode_is_a_first_one():
    net = Drawing(DRAWS["nothing"])
    rewinder = Rewinder(net)
    firsts = []
    for training in (True, True, False, False, True):
        net.train(training)
        rewinder.before_call()
        net(torch.randn(4, 2))
        firsts.append(rewinder.call_succeeded())
    assert firsts == [True, False, True, False, False]


def test_a_buffer_that_is_replaced_by_another_shape_is_no_trouble():
    class Replacing(Drawing):
        def forward(self, x):
            self.table = torch.zeros(len(self.table) + 1)
            return super().forward(x)

    net = Replacing(DRAWS["nothing"])
    rewinder = Rewinder(net)
    for size in (3, 4, 5):
        rewind = rewinder.before_call()
        net(torch.randn(4, 2))
        assert len(net.table) == size
        rewinder.call_succeeded()
    rewind()
    assert len(net.table) == 4


def test_a_rewinder_keeps_no_module_alive():
    net = Drawing(DRAWS["nothing"])
    rewinder = Rewinder(net)
    rewinder.before_call()
    net(torch.randn(4, 2))
    rewinder.call_succeeded()
    gone = weakref.ref(net)
    del net
    gc.collect()
    assert gone() is None

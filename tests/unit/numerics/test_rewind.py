import random

import torch
from torch import nn

from fulltilt.numerics.rewind import rewind_point


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

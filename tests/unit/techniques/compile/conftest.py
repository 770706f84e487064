"""A compiler without memory, and a choice of backends."""

import functools

import pytest
import torch
import torch._functorch.config
from torch._dynamo.utils import counters

from fulltilt.techniques.compile import session


@pytest.fixture(autouse=True)
def fresh_compiler():
    donated_buffer = torch._functorch.config.donated_buffer
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()
    torch._functorch.config.donated_buffer = donated_buffer
    session._num_prepared = 0


@pytest.fixture
def use_backend(monkeypatch):
    """Compile by another backend than inductor."""
    real = torch.compile

    def use(backend):
        monkeypatch.setattr(torch, "compile", functools.partial(real, backend=backend))

    use("aot_eager")
    return use

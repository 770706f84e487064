"""Going back to the moment before a module was called, so that the call can be made again."""

import random
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def rewind_point(module: nn.Module) -> Callable[[], None]:
    """A function that puts back the buffers of `module` and the random streams as they are now."""
    buffers = [
        (owner, name, buffer, buffer.detach().clone())
        for owner in module.modules()
        for name, buffer in owner._buffers.items()
        if buffer is not None
    ]
    restore_streams = streams_point()

    def rewind() -> None:
        with torch.no_grad():
            for owner, name, buffer, saved in buffers:
                buffer.copy_(saved)
                owner._buffers[name] = buffer
        restore_streams()

    return rewind


def streams_point() -> Callable[[], None]:
    """A function that puts back the random streams as they are now: torch's (CPU, and CUDA where it is in use), that of
    `random`, and NumPy's where it is loaded."""
    cpu, python = torch.get_rng_state(), random.getstate()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    numpy: Any = getattr(sys.modules.get("numpy"), "random", None)
    numpy_state = numpy.get_state() if numpy is not None else None

    def restore() -> None:
        torch.set_rng_state(cpu)
        random.setstate(python)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        if numpy is not None:
            numpy.set_state(numpy_state)

    return restore

"""Settings of the compiler while it compiles our units, put back at once.

`skip_nnmodule_hook_guards` off: hooks that the script registers after the first call run (pytorch/pytorch#117758).
`force_non_lazy_backward_lowering` on: the backward pass is compiled with the forward pass, and fails there.

One setting stays: `donated_buffer` off, so that `backward(retain_graph=True)` works, which compiled code otherwise
refuses. The backward pass looks at it when it runs, and it only saves memory.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch._dynamo.config as dynamo_config
import torch._functorch.config as functorch_config
from torch._dynamo.callback import callback_handler

_depth = 0
_during_compilation = ExitStack()


def prepare() -> None:
    """Import what `torch.compile` will import, without the warnings about torch's own use of what it has deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("torch._inductor.compile_fx")
    functorch_config.donated_buffer = False


@contextmanager
def inside() -> Iterator[None]:
    """Compilations in here are ours; the script's own keep the script's settings."""
    global _depth
    if _started not in callback_handler.start_callbacks:  # torch._dynamo.reset() forgets them
        callback_handler.register_start_callback(_started)
        callback_handler.register_end_callback(_ended)
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1


def room_for(num_units: int) -> Any:
    """Blocks that differ in an int attribute (a layer index) share code and count towards one limit of compilations."""
    limit: int = dynamo_config.recompile_limit
    return dynamo_config.patch(recompile_limit=limit + 4 * num_units)


def _started(*_: Any) -> None:
    if _depth:
        _during_compilation.enter_context(warnings.catch_warnings())  # the compiler's remarks are not the script's
        warnings.simplefilter("ignore")
        _during_compilation.enter_context(dynamo_config.patch(skip_nnmodule_hook_guards=False))
        _during_compilation.enter_context(functorch_config.patch(force_non_lazy_backward_lowering=True))


def _ended(*_: Any) -> None:
    _during_compilation.close()

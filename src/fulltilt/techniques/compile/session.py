"""Settings of the compiler while it compiles our units, put back at once.

`skip_nnmodule_hook_guards` off: hooks that the script registers after the first call run (pytorch/pytorch#117758).
`force_non_lazy_backward_lowering` on: the backward pass is compiled with the forward pass, and fails there.

One setting stays while code of ours may run: `donated_buffer` off, so that `backward(retain_graph=True)` works at any
step, which compiled code otherwise refuses. The backward pass looks at it when it runs, and it only saves memory.
"""

from __future__ import annotations

import importlib
import inspect
import threading
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
import torch._dynamo.config as dynamo_config
import torch._functorch.config as functorch_config
from torch import nn
from torch._dynamo.callback import callback_handler

from fulltilt.numerics.rewind import rewind_point

_LIMIT_IS_AN_ARGUMENT = "recompile_limit" in inspect.signature(torch.compile).parameters
_donated_buffer = True
_num_prepared = 0
_tie_draws = False


class _OpenCalls(threading.local):
    def __init__(self) -> None:
        self.calls: list[CompiledCall] = []


_open = _OpenCalls()
_during_compilation = ExitStack()


def prepare() -> None:
    """Import what `torch.compile` will import, without the warnings about torch's own use of what it has deprecated."""
    global _donated_buffer, _num_prepared
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("torch._inductor.compile_fx")
    if not _num_prepared:
        _donated_buffer = functorch_config.donated_buffer
    _num_prepared += 1
    functorch_config.donated_buffer = False


def tie_draws() -> None:
    """From here on compiled code draws the random numbers that eager code would: its numbers are to be compared."""
    global _tie_draws
    _tie_draws = True


def release() -> None:
    """Undo one `prepare()`, for a unit that has never run compiled: nothing of it will be differentiated."""
    global _num_prepared
    _num_prepared -= 1
    if not _num_prepared:
        functorch_config.donated_buffer = _donated_buffer


def room_for(num_units: int, compilations: int) -> int:
    """The limit of compilations that our own count comes before: blocks that differ in an int attribute (a layer index)
    share code, and all of them count towards one limit of the compiler's."""
    limit: int = dynamo_config.recompile_limit
    return limit + (compilations + 1) * num_units


def limit_arguments(limit: int) -> dict[str, Any]:
    """For `torch.compile`, where this torch takes the limit there; else `CompiledCall` sets it."""
    return {"recompile_limit": limit} if _LIMIT_IS_AN_ARGUMENT else {}


class CompiledCall:
    """While it is entered, compilations are ours; the script's own keep the script's settings."""

    __slots__ = ("_before", "_limit", "_module", "rewind")

    def __init__(self, module: nn.Module, limit: int) -> None:
        self._module, self._limit = module, limit
        self._before = 0
        self.rewind: Callable[[], None] | None = None
        """Back to where this call began; made when the first compilation starts, before anything has run."""

    def __enter__(self) -> None:
        if _started not in callback_handler.start_callbacks:  # torch._dynamo.reset() forgets them
            callback_handler.register_start_callback(_started)
            callback_handler.register_end_callback(_ended)
        if not _LIMIT_IS_AN_ARGUMENT:
            self._before = dynamo_config.recompile_limit
            dynamo_config.recompile_limit = self._limit
        _open.calls.append(self)

    def __exit__(self, *exc_info: object) -> None:
        _open.calls.pop()
        if not _LIMIT_IS_AN_ARGUMENT:
            dynamo_config.recompile_limit = self._before

    def compilation_starts(self) -> None:
        if self.rewind is None:
            self.rewind = rewind_point(self._module)


def _started(*_: Any) -> None:
    if _open.calls:
        _open.calls[-1].compilation_starts()
        _during_compilation.enter_context(warnings.catch_warnings())  # the compiler's remarks are not the script's
        warnings.simplefilter("ignore")
        _during_compilation.enter_context(dynamo_config.patch(skip_nnmodule_hook_guards=False))
        if _tie_draws:
            _during_compilation.enter_context(_inductor_config().patch(fallback_random=True))
        _during_compilation.enter_context(functorch_config.patch(force_non_lazy_backward_lowering=True))


def _inductor_config() -> Any:
    """Imported late: it takes a second."""
    return importlib.import_module("torch._inductor.config")


def _ended(*_: Any) -> None:
    _during_compilation.close()

"""One compiled module under a guard: what goes wrong in compilation is taken back, and the module runs eager.

Compilation is lazy: it happens, and fails, at the first call and not in `compile()`. The backward pass is compiled
together with the forward pass here, so that its failure surfaces in the forward call too, while there is still a way
back.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._dynamo import trace_rules
from torch._dynamo.external_utils import wrap_inline
from torch._dynamo.utils import counters

from fulltilt.numerics.rewind import rewind_point
from fulltilt.techniques.compile import session
from fulltilt.techniques.compile.gate import Gate

MAX_COMPILATIONS = 8
"""Calls of one unit that may compile anew; after more, its shapes or arguments count as too varied."""
_MAX_KINDS = 64
"""Kinds of calls kept in mind; a unit with more is not watched for new ones."""
_COMPILER_FOLDERS = ("/torch/_dynamo/", "/torch/_inductor/", "/torch/_functorch/", "torchinductor_", "/triton/")


@dataclass(slots=True)
class Tally:
    """What one unit has done. Kept by whoever asks for the proof, so it holds no module."""

    name: str
    num_calls: int = 0
    num_graphs: int = 0
    fell_back: str = ""
    """Why it runs eager; empty while it runs compiled."""


class GuardedUnit:
    """A module that is compiled in place, with the way back to eager."""

    def __init__(self, name: str, module: nn.Module, gate: Gate, note: Callable[[str], None], num_units: int) -> None:
        self.module = module
        self.tally = Tally(name)
        self._gate = gate
        self._note = note
        self._num_units = num_units
        self._num_compilations = 0
        self._kinds: set[Any] = set()
        self._compiled: Callable[..., Any] | None = None

    def install(self, *, mode: str, dynamic: bool | None) -> None:
        """Compile the module in place; the work is done at its first call."""
        session.prepare()
        entry = self.module._call_impl
        if trace_rules.check(self.module.forward):  # a class of torch.nn, whose frames the compiler skips
            entry = wrap_inline(entry)
        self._compiled = torch.compile(entry, mode=None if mode == "default" else mode, dynamic=dynamic)
        self.module._compiled_call_impl = self.call  # where `Module.compile` puts it: no copy or pickle takes it along

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The module's call: compiled while that works."""
        if self._compiled is None or self._gate.closed or torch.compiler.is_compiling():
            return self.module._call_impl(*args, **kwargs)
        kind = self._kind(args, kwargs)
        if kind in self._kinds or len(self._kinds) >= _MAX_KINDS:
            return self._call_known(args, kwargs)
        output = self._call_new(args, kwargs)
        self._kinds.add(kind)
        return output

    def _call_known(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return self._counted(args, kwargs)
        except Exception as error:
            if not is_compiler_error(error):
                raise
            self._fall_back(error)
        return self.module._call_impl(*args, **kwargs)

    def _call_new(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that will compile: remember where it started, so that it can be made again."""
        rewind = rewind_point(self.module)
        try:
            with session.room_for(self._num_units):
                return self._counted(args, kwargs)
        except Exception as error:
            if not is_compiler_error(error):
                raise
            self._fall_back(error)
        rewind()
        return self.module._call_impl(*args, **kwargs)

    def _counted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self._compiled is not None
        before = counters["stats"]["unique_graphs"]
        with session.inside():
            output = self._compiled(*args, **kwargs)
        self.tally.num_calls += 1
        self._count_graphs(counters["stats"]["unique_graphs"] - before)
        return output

    def _count_graphs(self, new: int) -> None:
        self.tally.num_graphs += new
        self._num_compilations += new > 0
        if new and self._num_compilations > MAX_COMPILATIONS:
            self._go_eager(f"it was compiled {self._num_compilations} times: its shapes or arguments vary too much")

    def _fall_back(self, error: BaseException) -> None:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        self._go_eager(f"{type(error).__name__}: {' '.join(lines[:2])[:200]}")

    def _go_eager(self, reason: str) -> None:
        self.tally.fell_back = reason
        self._compiled = None
        self.module._compiled_call_impl = None
        self._note(f"compile: {self.tally.name} runs eager, {reason}")

    def _kind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return (
            self.module.training,
            torch.is_grad_enabled(),
            tuple(_shape_of(value) for value in args),
            tuple((key, _shape_of(value)) for key, value in kwargs.items()),
        )


def is_compiler_error(error: BaseException) -> bool:
    """Did compilation, or code that it wrote, raise this, rather than the user's own code?"""
    if isinstance(error, torch.OutOfMemoryError):
        return False
    if type(error).__module__.startswith(("torch._dynamo.", "torch._inductor.", "torch._functorch.")):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and any(folder in frames[-1].filename for folder in _COMPILER_FOLDERS)


def _shape_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype
    if isinstance(value, tuple | list):
        return tuple(_shape_of(item) for item in value)
    return type(value)

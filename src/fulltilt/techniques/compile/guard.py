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

from fulltilt.techniques.compile import session
from fulltilt.techniques.compile.gate import Gate, is_transformed

MAX_COMPILATIONS = 8
"""Calls of one unit that may compile anew; after more, its shapes or arguments count as too varied."""
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
        self._limit = session.room_for(num_units, MAX_COMPILATIONS)
        self._num_compilations = 0
        self._compiled: Callable[..., Any] | None = None

    def install(self, *, mode: str, dynamic: bool | None) -> None:
        """Compile the module in place; the work is done at its first call."""
        session.prepare()
        entry = self.module._call_impl
        if trace_rules.check(self.module.forward):  # a class of torch.nn, whose frames the compiler skips
            entry = wrap_inline(entry)
        limit = session.limit_arguments(self._limit)
        try:
            self._compiled = torch.compile(entry, mode=None if mode == "default" else mode, dynamic=dynamic, **limit)
        except Exception as error:  # it checks its arguments and the platform at once, all else at the first call
            self._go_eager(_in_short(error))
            return
        self.module._compiled_call_impl = self.call  # where `Module.compile` puts it: no copy or pickle takes it along

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The module's call: compiled while that works."""
        if is_transformed() or self._compiled is None or self._gate.closed:
            return self.module._call_impl(*args, **kwargs)
        frames, graphs = counters["frames"]["total"], counters["stats"]["unique_graphs"]
        here = session.CompiledCall(self.module, self._limit)
        try:
            with here:
                output = self._compiled(*args, **kwargs)
        except Exception as error:
            if not is_compiler_error(error):
                raise
            failure = error
        else:
            self._gate.passed = True
            self.tally.num_calls += 1
            if counters["frames"]["total"] > frames:
                self._count(counters["stats"]["unique_graphs"] - graphs)
            return output
        return self._call_again(failure, here.rewind, args, kwargs)

    def _call_again(
        self, error: Exception, rewind: Callable[[], None] | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The call once more, eager. An error of the script's own comes again, and the compiler was not to blame."""
        if rewind is not None:
            rewind()
        output = self.module._call_impl(*args, **kwargs)
        self._go_eager(_in_short(error))
        return output

    def _count(self, new_graphs: int) -> None:
        """Tried is counted like done: at its own limit the compiler stops, and only looks for what it has already."""
        self.tally.num_graphs += new_graphs
        self._num_compilations += 1
        if self._num_compilations > MAX_COMPILATIONS:
            self._go_eager(f"it was compiled {self._num_compilations} times: its shapes or arguments vary too much")

    def _go_eager(self, reason: str) -> None:
        self.tally.fell_back = reason
        self._compiled = None
        self.module._compiled_call_impl = None
        if not self.tally.num_calls:
            session.release()
        self._note(f"compile: {self.tally.name} runs eager, {reason}")


def _in_short(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])[:200]}"


def is_compiler_error(error: BaseException) -> bool:
    """Did compilation, or code that it wrote, raise this, rather than the user's own code?"""
    if isinstance(error, torch.OutOfMemoryError):
        return False
    if type(error).__module__.startswith(("torch._dynamo.", "torch._inductor.", "torch._functorch.")):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and any(folder in frames[-1].filename for folder in _COMPILER_FOLDERS)

"""Tensors and random generators that the script keeps by itself, besides parameters and buffers. Worker side.

An average of the weights, a queue of features, a loss scale, the generator of an augmentation: nothing of it is a part
of the model, and training may depend on all of it. They are found from the variables of the user's own frames, which
are on the stack when an optimizer steps: in containers, modules and objects up to a few levels deep.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from fulltilt.numerics.sketching import sketch
from fulltilt.records.record import HeldTensor, TensorSketch

_MAX_DEPTH = 4
_MAX_ITEMS = 4096
_MAX_FOUND = 4096
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}lib{os.sep}python", "<frozen", "<string", _PACKAGE)
_NOT_STATE = (
    type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.FrameType,
    str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device, torch.Size,
    torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, Dataset, Sampler, _BaseDataLoaderIter,
)  # fmt: skip


@dataclass(slots=True)
class _Holding:
    """Where something is, what holds it, and a way to ask whether it is still the same thing."""

    path: str
    thing: Any
    owner: Callable[[], int]


@dataclass(slots=True)
class HeldState:
    """`look` after the first step, `found` after the last: what the same owner holds at the same place both times."""

    _starts: dict[str, tuple[Callable[[], int], TensorSketch]] = field(default_factory=dict)

    def look(self, modules: Mapping[str, nn.Module]) -> None:
        """Remember what is there after the first step; `modules` are the roots, whose own state is known."""
        for holding in _holdings(modules):
            if isinstance(holding.thing, torch.Tensor):
                self._starts[holding.path] = (holding.owner, sketch(holding.thing))

    def found(self, modules: Mapping[str, nn.Module]) -> tuple[dict[str, HeldTensor], dict[str, str]]:
        """Tensors that were held from the first step to this one, and the states of generators."""
        tensors: dict[str, HeldTensor] = {}
        generators: dict[str, str] = {}
        for holding in _holdings(modules):
            if isinstance(holding.thing, torch.Generator):
                state = bytes(holding.thing.get_state().tolist())
                generators[holding.path] = hashlib.sha256(state).hexdigest()[:16]
            elif holding.path in self._starts:
                owner, start = self._starts[holding.path]
                if owner() and owner() == holding.owner():
                    tensors[holding.path] = HeldTensor(start=start, end=sketch(holding.thing))
        return tensors, generators


def _holdings(modules: Mapping[str, nn.Module]) -> Iterator[_Holding]:
    walk = _Walk(modules)
    for frame in _user_frames():
        prefix = "" if frame.f_code.co_name == "<module>" else f"{frame.f_code.co_name}: "
        for name, value in _variables(frame):
            yield from walk.values(prefix + name, value, None, 0)


def _user_frames() -> list[types.FrameType]:
    frames: list[types.FrameType] = []
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if not any(part in frame.f_code.co_filename for part in _INSTALLED):
            frames.append(frame)
        frame = frame.f_back
    return frames


def _variables(frame: types.FrameType) -> list[tuple[str, Any]]:
    """The frame's variables. Reading a function's leaves copies of them in the frame, up to Python 3.12: they go."""
    variables = frame.f_locals
    found = [(name, value) for name, value in variables.items() if not name.startswith("__")]
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(variables, dict):
        variables.clear()
    return found


class _Walk:
    """Goes through values once each."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        layers = {id(layer) for module in modules.values() for layer in module.modules()}
        tensors = {id(t) for module in modules.values() for t in (*module.parameters(), *module.buffers())}
        self._seen = layers | tensors
        self._num_found = 0

    def values(self, path: str, value: Any, owner: object | None, depth: int) -> Iterator[_Holding]:
        if isinstance(value, _NOT_STATE) or id(value) in self._seen or self._num_found >= _MAX_FOUND:
            return
        if isinstance(value, torch.Tensor):
            yield from self._tensor(path, value, owner)
            return
        self._seen.add(id(value))
        if isinstance(value, torch.Generator):
            yield _Holding(path, value, lambda: 0)
        elif depth < _MAX_DEPTH:
            for name, item in _parts(value):
                yield from self.values(path + name, item, value, depth + 1)

    def _tensor(self, path: str, tensor: torch.Tensor, owner: object | None) -> Iterator[_Holding]:
        """Only numbers that are kept: a tensor with a grad_fn belongs to one step's graph."""
        if tensor.grad_fn is None and (tensor.is_floating_point() or tensor.is_complex()) and not tensor.is_meta:
            self._num_found += 1
            yield _Holding(path, tensor, _identity(tensor if owner is None else owner))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, nn.Module):
        yield from ((f".{name}", tensor) for name, tensor in value.named_parameters())
        yield from ((f".{name}", tensor) for name, tensor in value.named_buffers())
    elif isinstance(value, dict):
        yield from ((f"[{key!r}]", item) for key, item in value.items()) if len(value) <= _MAX_ITEMS else ()
    elif isinstance(value, list | tuple):
        yield from ((f"[{index}]", item) for index, item in enumerate(value)) if len(value) <= _MAX_ITEMS else ()
    elif isinstance(value, DataLoader):
        yield ".generator", value.generator
        yield ".sampler.generator", getattr(value.sampler, "generator", None)
    else:
        yield from ((f".{name}", item) for name, item in getattr(value, "__dict__", {}).items())


def _identity(thing: object) -> Callable[[], int]:
    """A number that is the thing's as long as it lives, and 0 afterwards, where that can be told."""
    try:
        reference = weakref.ref(thing)
    except TypeError:  # a dict, a list: their numbers may come again, so a short-lived one can be taken for kept
        number = id(thing)
        return lambda: number
    return lambda: id(living) if (living := reference()) is not None else 0

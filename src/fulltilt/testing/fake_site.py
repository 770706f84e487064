"""A `technique.Site` around a model, optimizers and loaders of your own, without the tap.

with FakeSite(model, optimizer) as site:
    result = spec.load_apply()(site, spec.options())
    ...train as usual; calls of `model` and its backward pass go through the technique's wrappers...
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import DataLoader

from fulltilt.technique import CallWrapper


class FakeSite:
    """Implements the Site protocol; wrappers and callbacks run while it is entered, and leaving it puts torch back."""

    def __init__(
        self,
        modules: nn.Module | Iterable[nn.Module] = (),
        optimizers: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] = (),
        loaders: DataLoader[Any] | Iterable[DataLoader[Any]] = (),
    ) -> None:
        self.modules: dict[str, nn.Module] = _named(_one_or_more(modules, nn.Module))
        self.optimizers: dict[str, torch.optim.Optimizer] = _named(_one_or_more(optimizers, torch.optim.Optimizer))
        self.loaders: tuple[DataLoader[Any], ...] = _one_or_more(loaders, DataLoader)
        self.notes: list[str] = []
        self.num_steps = 0
        self.tie_draws = False
        self._undo = contextlib.ExitStack()
        self._wrappers: dict[nn.Module, list[CallWrapper]] = {}
        self._backward_wrappers: list[CallWrapper] = []
        self._before_step: list[Callable[[torch.optim.Optimizer], None]] = []
        self._after_step: list[Callable[[int], None]] = []
        self._opened: set[type] = set()
        self._entered = False
        self._inside = False

    @property
    def device(self) -> torch.device:
        for module in self.modules.values():
            for parameter in module.parameters():
                return parameter.device
        return torch.device("cpu")

    def around(self, module: nn.Module, wrapper: CallWrapper) -> None:
        self._wrappers.setdefault(module, []).append(wrapper)
        if self._entered:
            self._open_class(type(module))

    def around_backward(self, wrapper: CallWrapper) -> None:
        self._backward_wrappers.append(wrapper)

    def before_optimizer_step(self, callback: Callable[[torch.optim.Optimizer], None]) -> None:
        self._before_step.append(callback)

    def after_step(self, callback: Callable[[int], None]) -> None:
        self._after_step.append(callback)

    def note(self, message: str) -> None:
        if message not in self.notes:
            self.notes.append(message)

    def __enter__(self) -> Self:
        self._entered = True
        for module in self._wrappers:
            self._open_class(type(module))
        backward = torch.autograd.backward
        self._seam(torch.autograd, "backward", self._make_backward(backward))
        self._undo.callback(register_optimizer_step_pre_hook(self._about_to_step).remove)
        self._undo.callback(register_optimizer_step_post_hook(self._stepped).remove)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()
        self._entered = False
        self._opened.clear()
        self._wrappers.clear()

    def _open_class(self, cls: type[nn.Module]) -> None:
        if cls not in self._opened:
            self._opened.add(cls)
            self._seam(cls, "__call__", self._make_call(cls.__call__))

    def _seam(self, owner: Any, name: str, replacement: Any) -> None:
        own = name in vars(owner)
        before = getattr(owner, name)
        setattr(owner, name, replacement)
        self._undo.callback(*((setattr, owner, name, before) if own else (delattr, owner, name)))

    def _make_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __call__(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or self._inside or module not in self._wrappers:
                return original(module, *args, **kwargs)
            self._inside = True
            try:
                call = _nested(self._wrappers[module], lambda *args, **kwargs: original(module, *args, **kwargs))
                return call(*args, **kwargs)
            finally:
                self._inside = False

        return __call__

    def _make_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(*args: Any, **kwargs: Any) -> Any:
            return _nested(self._backward_wrappers, original)(*args, **kwargs)

        return backward

    def _about_to_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for callback in self._before_step:
            callback(optimizer)

    def _stepped(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self.optimizers and optimizer is next(iter(self.optimizers.values())):
            self.num_steps += 1
            for callback in self._after_step:
                callback(self.num_steps)


def _nested(wrappers: list[CallWrapper], call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` inside all wrappers; the last one is innermost."""
    for wrapper in reversed(wrappers):
        call = _bind(wrapper, call)
    return call


def _bind(wrapper: CallWrapper, call: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return wrapper(call, args, kwargs)

    return wrapped


def _one_or_more(given: Any, cls: type) -> tuple[Any, ...]:
    return (given,) if isinstance(given, cls) else tuple(given)


def _named(items: Iterable[Any]) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for item in items:
        class_name = type(item).__name__
        number = sum(1 for name in names if name.rpartition("#")[0] == class_name)
        names[f"{class_name}#{number}"] = item
    return names

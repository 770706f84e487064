"""Seam on calls of modules: finds root modules, and runs wrappers around their calls.

A root module is one that the user's code calls itself, with gradients enabled, rather than another module. While roots
are looked for, `nn.Module.__call__` is ours between root calls and torch's own inside them, so that compiled code never
traces us. Afterwards only the classes of roots that have wrappers carry a `__call__` of ours. Instances are never
touched: their `__dict__`, pickles and copies stay what they were.
"""

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import ParametrizationList

from fulltilt.tap.seams.attribute import Replacement
from fulltilt.tap.seams.wrapping import bind
from fulltilt.technique import CallWrapper

FirstCall = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]
Observer = Callable[[nn.Module, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""`observer(module, call, args, kwargs)`: makes the call, returns what it returned."""


class CallSeam:
    """Install with `open()`; `settle()` when all roots are known; `open()` again when a new optimizer appears."""

    def __init__(self, first_call: FirstCall) -> None:
        self._first_call = first_call
        """Called before the first training call of each root."""
        self._roots: dict[int, tuple[weakref.ref[nn.Module], list[CallWrapper]]] = {}
        self._discovery: Replacement | None = None
        self._class_seams: dict[type, Replacement] = {}
        self._torch_call: Callable[..., Any] = nn.Module.__call__
        self._main_thread = threading.get_ident()
        self.observer: Observer | None = None
        """Runs around every root call while roots are looked for: shapes, forward time."""

    @property
    def is_open(self) -> bool:
        return self._discovery is not None

    def open(self) -> None:
        """Look for roots (again)."""
        if self._discovery is None:
            self._undo_class_seams()
            self._discovery = Replacement(nn.Module, "__call__", self._make_call(self._torch_call))

    def settle(self) -> None:
        """Stop looking. Roots without wrappers cost nothing from here on."""
        self.undo()
        roots = [(reference(), wrappers) for reference, wrappers in self._roots.values()]
        if any(wrappers for module, wrappers in roots if module is not None):
            for module, _ in roots:  # those without wrappers too: else their inner modules would look like roots
                if module is not None:
                    self._add_class_seam(type(module))

    def undo(self) -> None:
        """torch as it was."""
        if self._discovery is not None:
            self._discovery.undo()
            self._discovery = None
        self._undo_class_seams()

    def around(self, module: nn.Module, wrapper: CallWrapper) -> None:
        """Run `wrapper` around the calls of `module`; the last added is innermost."""
        self._roots.setdefault(id(module), (weakref.ref(module), []))[1].append(wrapper)

    def _undo_class_seams(self) -> None:
        for replacement in self._class_seams.values():
            replacement.undo()
        self._class_seams.clear()

    def _add_class_seam(self, cls: type) -> None:
        if cls not in self._class_seams:
            self._class_seams[cls] = Replacement(cls, "__call__", self._make_call(cls.__call__))

    def _make_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        is_compiling, in_backward = torch.compiler.is_compiling, torch._C._current_graph_task_id

        def __call__(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or self._inside or threading.get_ident() != self._main_thread:
                return original(module, *args, **kwargs)
            if in_backward() != -1:  # activation checkpointing computes a block again: no call of the user's code
                return original(module, *args, **kwargs)
            return self._root_call(original, module, args, kwargs)

        return __call__

    _inside = False

    def _root_call(
        self, original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        wrappers = self._wrappers_of(module)
        if wrappers is None:
            if not torch.is_grad_enabled() or isinstance(module, ParametrizationList):
                return self._other_call(original, module, args, kwargs)
            wrappers = self._roots[id(module)] = (weakref.ref(module), [])
            self._introduce(module, args, kwargs)
        self._enter()
        try:
            return self._run(wrappers[1], original, module, args, kwargs)
        finally:
            self._leave()

    def _other_call(
        self, original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """An evaluation before training, a module that is never trained, or a parametrized weight that is read."""
        self._enter()
        try:
            return original(module, *args, **kwargs)
        finally:
            self._leave()

    def _introduce(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Calls that a technique makes of the new root's parts are not the user's."""
        self._enter()
        try:
            self._first_call(module, args, kwargs)
        finally:
            self._leave()

    def _run(
        self,
        wrappers: list[CallWrapper],
        original: Callable[..., Any],
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return original(module, *args, **kwargs)

        for wrapper in reversed(wrappers):
            call = bind(wrapper, call)
        if self.observer is not None and self._discovery is not None:
            call = bind(functools.partial(self.observer, module), call)
        return call(*args, **kwargs)

    def _wrappers_of(self, module: nn.Module) -> tuple[weakref.ref[nn.Module], list[CallWrapper]] | None:
        entry = self._roots.get(id(module))
        return entry if entry is not None and entry[0]() is module else None

    def _enter(self) -> None:
        """Inside a root call nested calls are torch's own; `_inside` covers classes that carry a seam."""
        self._inside = True
        if self._discovery is not None:
            nn.Module.__call__ = self._torch_call  # type: ignore[method-assign]

    def _leave(self) -> None:
        self._inside = False
        if self._discovery is not None:
            self._discovery = Replacement(nn.Module, "__call__", self._make_call(self._torch_call))

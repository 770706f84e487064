"""Seams on `torch.autograd.backward`, which `Tensor.backward` calls too, and on `torch.autograd.grad`."""

from collections.abc import Callable
from typing import Any

import torch

from fulltilt.tap.seams.attribute import Replacement
from fulltilt.tap.seams.wrapping import bind
from fulltilt.technique import CallWrapper


class BackwardSeam:
    """Runs wrappers around backward calls; `undo()` when nobody needs them."""

    def __init__(self) -> None:
        self.wrappers: list[CallWrapper] = []
        self._before: Callable[..., Any] = torch.autograd.backward
        self._replacement: Replacement | None = None

    def install(self) -> None:
        if self._replacement is not None:
            return

        def backward(*args: Any, **kwargs: Any) -> Any:
            call = self._before
            for wrapper in reversed(self.wrappers):
                call = bind(wrapper, call)
            return call(*args, **kwargs)

        self._replacement = Replacement(torch.autograd, "backward", backward)

    def remove(self, wrapper: CallWrapper) -> None:
        """Take one wrapper out, and the seam with the last one."""
        if wrapper in self.wrappers:
            self.wrappers.remove(wrapper)
        if not self.wrappers:
            self.undo()

    def undo(self) -> None:
        if self._replacement is not None:
            self._replacement.undo()
            self._replacement = None


class GradSeam:
    """Tells whether `torch.autograd.grad` was asked for a graph of the gradient."""

    def __init__(self, on_double_backward: Callable[[], None]) -> None:
        before = torch.autograd.grad

        def grad(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("create_graph") or (len(args) > 4 and args[4]):
                on_double_backward()
            return before(*args, **kwargs)

        self._replacement = Replacement(torch.autograd, "grad", grad)

    def undo(self) -> None:
        self._replacement.undo()

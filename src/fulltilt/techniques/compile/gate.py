"""Keeps calls eager whose gradients are likely to be differentiated again, which compiled code cannot do.

A script that wants the derivative of a model by its input (a physics-informed net, a gradient penalty) hands in a leaf
that requires gradients. That is seen before the call; `create_graph=True` only after it, when it is too late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fulltilt.numerics.nested import tensors_in


class Gate:
    """Open for compiled code, or closed while a root module is inside such a call."""

    def __init__(self, name: str, note: Callable[[str], None]) -> None:
        self._name, self._note = name, note
        self.closed = False

    def call(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call of the root module."""
        if not any(tensor.requires_grad and tensor.is_leaf for tensor in tensors_in((args, kwargs))):
            return call(*args, **kwargs)
        self._note(
            f"compile: {self._name} runs eager where its input is a leaf that requires gradients, "
            "as compiled code has no second derivative"
        )
        self.closed = True
        try:
            return call(*args, **kwargs)
        finally:
            self.closed = False

"""Keeps compiled code away from gradients that are differentiated again: it has no second derivative.

A script that wants the derivative of a model by its input (a physics-informed net, a gradient penalty) hands in a leaf
that requires gradients. That is seen before the call, which then runs eager. `create_graph=True` is seen only in the
backward pass, when the graph is compiled already. torch then raises at the second derivative, or, where a path leads
through saved tensors alone, gives zero without a word (`torch.autograd.functional.hessian` of a sum). So it is refused
here, in the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad

from fulltilt.numerics.nested import tensors_in

_ADVICE = (
    "{name} ran compiled, and the script now asks for the graph of its gradient (create_graph=True). Compiled code has "
    "no second derivative. Take `compile` out of the recipe for this script."
)


class Gate:
    """Open for compiled code, or closed while a root module is inside a call that must be eager."""

    def __init__(self, name: str, note: Callable[[str], None]) -> None:
        self._name, self._note = name, note
        self._closed_for_good = False
        self.closed = False
        self.passed = False
        """Has compiled code run in this call of the root?"""

    def call(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call of the root module."""
        if is_transformed():  # each unit sees to that, and no gradient of torch's own comes out
            return call(*args, **kwargs)
        if self._closed_for_good or self._is_differentiated(args, kwargs):
            return self._eager_call(call, args, kwargs)
        self.passed = False
        output = call(*args, **kwargs)
        if self.passed and torch.is_grad_enabled():
            self._watch(output)
        return output

    def _is_differentiated(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if not any(tensor.requires_grad and tensor.is_leaf for tensor in tensors_in((args, kwargs))):
            return False
        self._note(
            f"compile: {self._name} runs eager where its input is a leaf that requires gradients, "
            "as compiled code has no second derivative"
        )
        return True

    def _eager_call(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.closed = True
        try:
            return call(*args, **kwargs)
        finally:
            self.closed = False

    def _watch(self, output: Any) -> None:
        """Be called when the gradient of `output` is there. On the node, not the tensor: the script may save that."""
        for tensor in tensors_in(output):
            if tensor.grad_fn is not None:
                tensor.grad_fn.register_prehook(self._refuse_second_derivative)

    def _refuse_second_derivative(self, gradients: Any) -> None:
        if torch.is_grad_enabled():  # in a backward pass: create_graph=True
            self._closed_for_good = True
            raise RuntimeError(f"fulltilt: {_ADVICE.format(name=self._name)}")


def is_transformed() -> bool:
    """Is somebody else taking the module's call apart: a compiler, a tracer, `torch.func`, forward-mode derivatives?"""
    return (
        torch.compiler.is_compiling()
        or peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
    )

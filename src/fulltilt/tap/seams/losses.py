"""Seam on torch's loss functions: told of every value that is computed without gradients, as evaluations do."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from fulltilt.tap.seams.attribute import Replacement

_NAMES = (
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "gaussian_nll_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
)
OnLoss = Callable[[str, torch.Tensor], None]


class LossSeam:
    """`on_loss(name, value)` for each scalar loss that is computed with gradients off, outside of compiled code."""

    def __init__(self, on_loss: OnLoss) -> None:
        self._replacements = [
            Replacement(functional, name, _observed(getattr(functional, name), name, on_loss)) for name in _NAMES
        ]

    def undo(self) -> None:
        for replacement in self._replacements:
            replacement.undo()


def _observed(original: Callable[..., Any], name: str, on_loss: OnLoss) -> Callable[..., Any]:
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original)
    def observed(*args: Any, **kwargs: Any) -> Any:
        value = original(*args, **kwargs)
        if not is_compiling() and not torch.is_grad_enabled() and isinstance(value, torch.Tensor) and value.ndim == 0:
            on_loss(name, value)
        return value

    # torch.jit.script then compiles the function itself: torch/jit/_script.py, "this is a decorated fn".
    setattr(observed, "__script_if_tracing_wrapper", True)
    setattr(observed, "__original_fn", original)
    return observed

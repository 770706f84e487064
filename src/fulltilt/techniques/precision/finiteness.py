"""Numbers that float16 cannot hold: whether there are any in what a module gives, and where they came up first.

An epsilon of 1e-12 is zero in float16, and what it was to protect divides by zero (pytorch/pytorch#32137).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from fulltilt.numerics.nested import tensors_in

MARK = "not finite"


def is_finite(value: Any) -> bool:
    """Are all floating-point numbers in it finite? Waits for the device."""
    return all(bool(tensor.isfinite().all()) for tensor in tensors_in(value) if tensor.is_floating_point())


def first_module(module: nn.Module, call: Callable[[], Any], dtype: str) -> str:
    """Make the call, and say in which part of `module` the first numbers came up that are not finite."""
    found: list[str] = []

    def look(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(part: nn.Module, args: Any, output: Any) -> None:
            if not found and not is_finite(output):
                found.append(f"{name or 'the model itself'} ({type(part).__name__})")

        return hook

    handles = [part.register_forward_hook(look(name)) for name, part in module.named_modules()]
    try:
        call()
    finally:
        for handle in handles:
            handle.remove()
    return f"numbers that are {MARK} come up in {found[0] if found else 'what it returns'} in {dtype}"

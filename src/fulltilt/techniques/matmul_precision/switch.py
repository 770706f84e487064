"""The switch for the precision of float32 products, given back as soon as the script reaches for another one.

torch has three: `set_float32_matmul_precision`, `torch.backends.cuda.matmul.allow_tf32`, and from 2.9 on
`fp32_precision` of each backend. They are kept apart inside, and where they disagree torch raises at the next look
(pytorch/pytorch#166387): `allow_tf32 = False` at the top of a script, harmless by itself, would end it in inductor. So
when the script sets one of the other two, ours goes back first, and the script finds what it would have found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

_NEWER_SETTER = "_set_fp32_precision_setter"
_BACKENDS = ("cuda", "mkldnn")
_given_back: Callable[[str], None] | None = None
_originals: dict[str, Any] = {}
_before: dict[str, str] = {}
"""The newer settings of products, by backend."""


def turn(precision: str, given_back: Callable[[str], None]) -> None:
    """Set the precision. `given_back(name)` is called when the script has set it by `name`."""
    global _given_back
    if hasattr(torch._C, _NEWER_SETTER):
        _before.update({backend: torch._C._get_fp32_precision_getter(backend, "matmul") for backend in _BACKENDS})
    torch.set_float32_matmul_precision(precision)
    _given_back = given_back
    for name in ("_set_cublas_allow_tf32", _NEWER_SETTER):
        if name not in _originals and hasattr(torch._C, name):
            _originals[name] = getattr(torch._C, name)
            setattr(torch._C, name, _watching(name))


def turn_back(precision: str = "highest") -> None:
    """As it was before `turn`, and nothing of ours in torch."""
    global _given_back
    _given_back = None
    for name, original in _originals.items():
        setattr(torch._C, name, original)
    torch.set_float32_matmul_precision(precision)
    for backend, value in _before.items():
        torch._C._set_fp32_precision_setter(backend, "matmul", value)
    _originals.clear()
    _before.clear()


def _watching(name: str) -> Callable[..., Any]:
    original = _originals[name]

    def setter(*args: Any) -> Any:
        told = _given_back
        if told is not None and _is_about_products(name, args) and _is_a_decision(sys._getframe(1).f_globals):
            turn_back()
            told("fp32_precision" if name == _NEWER_SETTER else "allow_tf32")
        return original(*args)

    return setter


def _is_a_decision(caller: dict[str, Any]) -> bool:
    """A script comes through `torch.backends`; the compiler puts back itself what it has found, at each compilation."""
    return str(caller.get("__name__", "")).startswith("torch.backends")


def _is_about_products(name: str, args: tuple[Any, ...]) -> bool:
    """Settings of convolutions and of whole backends do not meet ours."""
    return name != _NEWER_SETTER or args[1] == "matmul" or args[:2] == ("generic", "all")

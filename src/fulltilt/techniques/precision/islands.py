"""Hand-written `autograd.Function` classes stay in float32 inside an autocast region.

Such a class calls raw operations in `forward`, which autocast would cast, and others in `backward`, which it would not:
the dtypes no longer meet (https://github.com/pytorch/pytorch/issues/87979). torch offers `custom_fwd` for the author to
say what should happen; where the author said nothing, the class is given the float32 inputs it was written for.

Compiled code does not come by here: the compiler traces `forward` and `backward` of the class themselves, with autocast
as it is, and what it cannot trace raises at the first call, before anything is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import Function

_HALF = (torch.float16, torch.bfloat16)
_original: Any = None
_note: Callable[[str], None] = lambda message: None  # noqa: E731
_noted: set[type] = set()


def install(note: Callable[[str], None]) -> None:
    """From now on, user-written Functions called under autocast compute in float32. Does nothing the second time."""
    global _original, _note
    _note = note
    if _original is None:
        _original = Function.__dict__["apply"]
        Function.apply = classmethod(_apply)  # type: ignore[assignment, method-assign]


def remove() -> None:
    """torch as it was."""
    global _original
    if _original is not None:
        Function.apply = _original  # type: ignore[method-assign]
        _original = None
        _noted.clear()


def is_hand_written(cls: type) -> bool:
    """Not torch's own, and without `custom_fwd` to say how it wants to be treated."""
    if cls.__module__.partition(".")[0] == "torch":
        return False
    forward: Any = cls.forward  # type: ignore[attr-defined]
    return getattr(forward, "__globals__", {}).get("__name__") != "torch.amp.autocast_mode"


def _apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
    device_type = _device_type(args)
    if device_type is None or not torch.is_autocast_enabled(device_type) or not is_hand_written(cls):
        return _original.__func__(cls, *args, **kwargs)
    if not torch.compiler.is_compiling():
        _tell(cls)
    inputs = [_in_float32(value) for value in args]
    with torch.autocast(device_type, enabled=False):
        return _original.__func__(cls, *inputs, **kwargs)


def _device_type(args: tuple[Any, ...]) -> str | None:
    for value in args:
        if isinstance(value, torch.Tensor):
            return value.device.type
    return None


def _in_float32(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _HALF else value


def _tell(cls: type) -> None:
    if cls not in _noted:
        _noted.add(cls)
        _note(f"precision: {cls.__name__} is a hand-written autograd.Function without custom_fwd, kept in float32")

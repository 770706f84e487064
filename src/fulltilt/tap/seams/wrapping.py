"""Puts a technique's wrapper around a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fulltilt.technique import CallWrapper


def bind(wrapper: CallWrapper, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, as the user's code makes it, with `wrapper` around it."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return wrapper(call, args, kwargs)

    return wrapped

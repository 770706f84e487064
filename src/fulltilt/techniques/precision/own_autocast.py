"""Sees whether a model opens an autocast region of its own, deep inside its forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class Watch:
    """`around(call)` notes regions that are opened, and enabled, in the call. For first calls: it is not free."""

    def __init__(self) -> None:
        self.seen = False

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        original: Any = torch.autocast.__enter__

        def enter(region: Any) -> Any:
            self.seen = self.seen or bool(region._enabled)
            return original(region)

        def watched(*args: Any, **kwargs: Any) -> Any:
            torch.autocast.__enter__ = enter  # type: ignore[method-assign]
            try:
                return call(*args, **kwargs)
            finally:
                torch.autocast.__enter__ = original  # type: ignore[method-assign]

        return watched

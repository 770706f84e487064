"""Seam on GradScaler: the loss that a scaled loss was made of."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import torch

from fulltilt.tap.seams.attribute import Replacement

_MOST_AT_ONCE = 16


class ScaleSeam:
    """Backward is called on a loss times a scale that grows and falls: the loss itself is what is learnt."""

    def __init__(self) -> None:
        original = torch.amp.GradScaler.scale
        self._scaled: deque[tuple[weakref.ref[torch.Tensor], torch.Tensor]] = deque(maxlen=_MOST_AT_ONCE)

        def scale(scaler: Any, outputs: Any) -> Any:
            scaled = original(scaler, outputs)
            if isinstance(scaled, torch.Tensor) and isinstance(outputs, torch.Tensor) and scaled is not outputs:
                self._scaled.append((weakref.ref(scaled), outputs.detach()))
            return scaled

        self._replacement = Replacement(torch.amp.GradScaler, "scale", scale)

    def unscaled(self, tensor: torch.Tensor) -> torch.Tensor:
        """What `tensor` was before it was scaled; itself where it was not."""
        return next((loss for reference, loss in self._scaled if reference() is tensor), tensor)

    def undo(self) -> None:
        self._replacement.undo()

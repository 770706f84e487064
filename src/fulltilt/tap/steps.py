"""Finds the training step: one period of the user's loop.

The mark of a period is the step of one optimizer, so that gradient accumulation, several optimizers (a GAN) and
closures (LBFGS) each give one step a period. The first optimizer that steps is the mark. Another takes over when it has
stepped three times since the mark last did: the script has gone on to another phase, or steps this one more often. A
script that never makes a torch optimizer (hand-written updates) is counted by its backward calls.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch

_TAKE_OVER_STEPS = 3


class StepClock:
    """Calls `on_step()` at the end of every training step."""

    def __init__(self, on_step: Callable[[], None]) -> None:
        self._on_step = on_step
        self._mark: weakref.ref[torch.optim.Optimizer] | None = None
        self._others: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()
        self.num_steps = 0
        self.has_optimizer = False
        """Was any optimizer made? Then backward calls are not steps."""

    def optimizer_made(self, optimizer: torch.optim.Optimizer) -> None:
        self.has_optimizer = True

    def optimizer_stepped(self, optimizer: torch.optim.Optimizer) -> None:
        mark = self._mark() if self._mark is not None else None
        if mark is None or optimizer is mark:
            if mark is None:
                self._mark = weakref.ref(optimizer)
            if self._others:
                self._others.clear()
            self._step()
            return
        since_mark = self._others.get(optimizer, 0) + 1
        self._others[optimizer] = since_mark
        if since_mark >= _TAKE_OVER_STEPS:
            self._mark = weakref.ref(optimizer)
            self._others.clear()

    def backward_done(self) -> None:
        if not self.has_optimizer:
            self._step()

    def _step(self) -> None:
        self.num_steps += 1
        self._on_step()

"""Times the phases of a step, for a few steps of a trial: a profile, never left on while two runs are compared."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from fulltilt.records.record import PhaseRecord
from fulltilt.tap.seams.loaders import WaitSeam


class PhaseTimer:
    """Adds up seconds by phase from `start()` to `stop()`. Wrappers go around root calls and backward calls.

    Forward is the time in root modules while gradients are enabled, so a loss function outside of the model counts as
    other host work. What calls nothing that we see is None, not measured: a loop without DataLoader has no data wait.
    """

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self._synchronize = synchronize
        self._forward = self._backward = self._optimizer = 0.0
        self._calls = {"forward": 0, "backward": 0, "optimizer": 0}
        self._optimizer_start = 0.0
        self._waits: WaitSeam | None = None
        self._start = 0.0
        self.running = False

    def start(self) -> None:
        self._synchronize()
        self._waits = WaitSeam()
        self.running = True
        self._start = time.perf_counter()

    def around_call(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.running or not torch.is_grad_enabled():
            return call(*args, **kwargs)
        start = time.perf_counter()
        try:
            return call(*args, **kwargs)
        finally:
            self._synchronize()
            self._forward += time.perf_counter() - start
            self._calls["forward"] += 1

    def around_backward(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.running:
            return call(*args, **kwargs)
        start = time.perf_counter()
        try:
            return call(*args, **kwargs)
        finally:
            self._synchronize()
            self._backward += time.perf_counter() - start
            self._calls["backward"] += 1

    def before_optimizer(self) -> None:
        if self.running:
            self._optimizer_start = time.perf_counter()
            self._nested = self._forward + self._backward

    def after_optimizer(self) -> None:
        """A closure's forward and backward are inside of the step: they count as what they are."""
        if self.running:
            self._synchronize()
            nested = self._forward + self._backward - self._nested
            self._optimizer += time.perf_counter() - self._optimizer_start - nested
            self._calls["optimizer"] += 1

    _nested = 0.0

    def stop(self, num_steps: int) -> PhaseRecord:
        self._synchronize()
        total = time.perf_counter() - self._start
        self.running = False
        waits = self._waits
        assert waits is not None
        waits.undo()
        known = {
            "data_wait": waits.seconds if waits.num_batches else None,
            "forward": self._forward if self._calls["forward"] else None,
            "backward": self._backward if self._calls["backward"] else None,
            "optimizer": self._optimizer if self._calls["optimizer"] else None,
        }
        other = max(0.0, total - sum(seconds for seconds in known.values() if seconds is not None))
        per_step = {name: None if seconds is None else seconds / num_steps for name, seconds in known.items()}
        return PhaseRecord(num_steps=num_steps, step_seconds=total / num_steps, other=other / num_steps, **per_step)

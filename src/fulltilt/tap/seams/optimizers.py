"""Seam on optimizers: told when one is made, before it steps and after it has stepped."""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from fulltilt.tap.seams.attribute import Replacement

Callback = Callable[[torch.optim.Optimizer], None]


class OptimizerSeam:
    """torch's own global step hooks, plus a replaced `Optimizer.__init__`."""

    def __init__(self, *, made: Callback, before_step: Callback, after_step: Callback) -> None:
        original = torch.optim.Optimizer.__init__

        def __init__(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            made(optimizer)

        self._init = Replacement(torch.optim.Optimizer, "__init__", __init__)
        self._before = register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: before_step(optimizer))
        self._after = register_optimizer_step_post_hook(lambda optimizer, args, kwargs: after_step(optimizer))

    def drop_before_step(self) -> None:
        """Nobody needs to know before a step any more: save its cost."""
        self._before.remove()

    def undo(self) -> None:
        self._init.undo()
        self._before.remove()
        self._after.remove()

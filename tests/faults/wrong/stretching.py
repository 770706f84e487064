"""Steps that are longer or shorter than the optimizer makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def stretch_steps(site: Any, factor_at: Callable[[int], float]) -> None:
    """Every step is `factor_at(step)` times as long, steps counted from 1."""
    before: dict[torch.Tensor, torch.Tensor] = {}

    def remember(optimizer: torch.optim.Optimizer) -> None:
        before.update({p: p.detach().clone() for group in optimizer.param_groups for p in group["params"]})

    @torch.no_grad()
    def stretch(num_steps: int) -> None:
        for p, old in before.items():
            if factor_at(num_steps) != 1:
                p.copy_(old + factor_at(num_steps) * (p - old))

    site.before_optimizer_step(remember)
    site.after_step(stretch)

"""Fused optimizer steps in the worker.

The optimizer object stays the user's. Its groups carry the flag only while `step()` runs, so that nothing of it is
found in a checkpoint, a copy or a pickle, and a checkpoint that is loaded cannot switch it off.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from fulltilt.technique import Applied, NoEffect, Site
from fulltilt.techniques.fused_optimizer.probe import implementing_class, why_not
from fulltilt.techniques.fused_optimizer.spec import FusedOptimizerOptions
from fulltilt.techniques.fused_optimizer.switched_step import SwitchedStep

_switched: weakref.WeakKeyDictionary[torch.optim.Optimizer, SwitchedStep] = weakref.WeakKeyDictionary()


def apply(site: Site, options: FusedOptimizerOptions) -> Applied | NoEffect:
    """Let the site's optimizers step by `options.implementation`."""
    reasons = []
    steps = []
    for optimizer in site.optimizers.values():
        reason = _reason(optimizer, options.implementation)
        if reason is None:
            steps.append(_switch(optimizer, options.implementation, site))
        else:
            reasons.append(f"{type(optimizer).__name__}: {reason}")
    if not steps:
        return NoEffect(reason="; ".join(dict.fromkeys(reasons)) or "no torch.optim optimizer")
    names = ", ".join(step.class_name for step in steps)
    proofs = [step.proofs for step in steps]
    return Applied(detail=f"{options.implementation} {names}", engaged=lambda: _proof(proofs))


def _reason(optimizer: torch.optim.Optimizer, implementation: str) -> str | None:
    if optimizer in _switched:
        return f"{_switched[optimizer].implementation} already"
    return why_not(optimizer, implementation)


def _switch(optimizer: torch.optim.Optimizer, implementation: str, site: Site) -> SwitchedStep:
    cls: Any = implementing_class(optimizer)
    step = SwitchedStep(optimizer, cls, implementation, site.note)
    _switched[optimizer] = step
    return step


def _proof(proofs: list[list[str]]) -> str | None:
    return "; ".join(dict.fromkeys(proof for found in proofs for proof in found)) or None

"""Fused optimizer steps: what they are, where they fit. Readable without torch."""

from dataclasses import dataclass
from typing import Literal

from fulltilt.records.record import OptimizerRecord
from fulltilt.technique import MachineRecord, Numerics, PhaseRecord, SiteRecord, Spec, Stage

FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
"""Classes of torch.optim with a fused implementation; a class of the user's own may inherit it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FusedOptimizerOptions:
    """Settings of `fused_optimizer`."""

    implementation: Literal["fused", "foreach"] = "fused"
    """"fused": one kernel for the whole update; "foreach": one kernel per operation for all parameters."""


def candidates(machine: MachineRecord, site: SiteRecord, phases: PhaseRecord) -> tuple[FusedOptimizerOptions, ...]:
    """Fused where some optimizer has it, foreach where some optimizer still loops over its parameters."""
    fitting = [optimizer for optimizer in site.optimizers if _why_not(optimizer) is None]
    found = []
    if any(optimizer.class_name in FUSED and optimizer.implementation != "fused" for optimizer in fitting):
        found.append(FusedOptimizerOptions())
    if any(optimizer.implementation == "for-loop" for optimizer in fitting):
        found.append(FusedOptimizerOptions(implementation="foreach"))
    return tuple(found)


def unavailable(machine: MachineRecord, site: SiteRecord | None) -> str | None:
    """Why no optimizer of this script can have another implementation."""
    if site is None or not site.optimizers:
        return None
    reasons = [_why_not(optimizer) for optimizer in site.optimizers]
    return None if None in reasons else "; ".join(dict.fromkeys(reason for reason in reasons if reason))


def bound(phases: PhaseRecord, site: SiteRecord) -> float:
    """The optimizer's phase at no cost at all."""
    if phases.optimizer is None:
        return float("inf")
    rest = phases.step_seconds - phases.optimizer
    return phases.step_seconds / rest if rest > 0 else float("inf")


def _why_not(optimizer: OptimizerRecord) -> str | None:
    if optimizer.implementation == "unknown":
        return f"{optimizer.class_name} has one implementation only"
    if optimizer.implementation == "fused":
        return f"{optimizer.class_name} is fused already"
    if optimizer.sparse_gradients:
        return f"{optimizer.class_name} gets sparse gradients"
    return None


SPEC = Spec(
    name="fused_optimizer",
    summary="The optimizer's step in one kernel for all parameters instead of a loop over them",
    options=FusedOptimizerOptions,
    stage=Stage.OPTIMIZER,
    numerics=Numerics.ROUNDING,
    apply="fulltilt.techniques.fused_optimizer.apply:apply",
    candidates=candidates,
    unavailable=unavailable,
    bound=bound,
)

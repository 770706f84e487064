"""Precision of float32 products: what it is, where it fits. Readable without torch."""

from dataclasses import dataclass
from typing import Literal

from fulltilt.technique import MachineRecord, Numerics, PhaseRecord, SiteRecord, Spec, Stage, forward_backward_bound


@dataclass(frozen=True, kw_only=True, slots=True)
class MatmulPrecisionOptions:
    """Settings of `matmul_precision`."""

    precision: Literal["high", "medium"] = "high"
    """"high": TensorFloat32, where the device has it; "medium": bfloat16."""


def candidates(machine: MachineRecord, site: SiteRecord, phases: PhaseRecord) -> tuple[MatmulPrecisionOptions, ...]:
    """TensorFloat32 on CUDA; bfloat16 on CPUs with tiles (AMX), which have nothing in between."""
    if site.device == "cuda":
        return (MatmulPrecisionOptions(),)
    if site.device == "cpu" and "amx_bf16" in machine.cpu_capability.split():
        return (MatmulPrecisionOptions(precision="medium"),)
    return ()


def unavailable(machine: MachineRecord, site: SiteRecord | None) -> str | None:
    """Why fewer bits do not fit this script."""
    if site is None:
        return None
    if site.double_backward:
        return "the script differentiates gradients (create_graph=True) and needs every bit"
    dtypes = {dtype for module in site.modules for dtype in module.dtypes}
    if dtypes and "float32" not in dtypes:
        return f"the parameters are {', '.join(sorted(dtypes))}, and it acts on float32 only"
    if any(optimizer.uses_closure for optimizer in site.optimizers):
        return "an optimizer evaluates the loss several times a step (closure) and needs exact values"
    return None


def rounding(options: MatmulPrecisionOptions) -> float:
    """Unit roundoff of the factors: TensorFloat32 keeps 11 bits of significand, bfloat16 keeps 8."""
    return 2.0**-11 if options.precision == "high" else 2.0**-8


SPEC = Spec(
    name="matmul_precision",
    summary="float32 matrix products in TensorFloat32 (high) or bfloat16 (medium)",
    options=MatmulPrecisionOptions,
    stage=Stage.BACKEND,
    numerics=Numerics.ROUNDING,
    apply="fulltilt.techniques.matmul_precision.apply:apply",
    candidates=candidates,
    unavailable=unavailable,
    bound=forward_backward_bound,
    rounding=rounding,
)

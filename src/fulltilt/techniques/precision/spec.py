"""Mixed precision: what it is, where it fits. Readable without torch."""

from dataclasses import dataclass
from typing import Literal

from fulltilt.technique import MachineRecord, Numerics, PhaseRecord, SiteRecord, Spec, Stage, forward_backward_bound

_CPU_BFLOAT16 = {"amx_bf16", "amx_tile", "avx512_bf16"}


@dataclass(frozen=True, kw_only=True, slots=True)
class PrecisionOptions:
    """Settings of `precision`."""

    dtype: Literal["bfloat16", "float16"] = "bfloat16"
    """What matrix products and convolutions compute in. float16 comes with dynamic loss scaling."""


def candidates(machine: MachineRecord, site: SiteRecord, phases: PhaseRecord) -> tuple[PrecisionOptions, ...]:
    """bfloat16 where the hardware computes it; float16 only on CUDA devices without bfloat16."""
    if site.device == "cuda":
        return (PrecisionOptions(dtype="bfloat16" if _cuda_has_bfloat16(machine) else "float16"),)
    if site.device == "cpu" and _CPU_BFLOAT16 & set(machine.cpu_capability.split()):
        return (PrecisionOptions(),)
    return ()


def unavailable(machine: MachineRecord, site: SiteRecord | None) -> str | None:
    """Why autocast does not fit this script."""
    if site is None:
        return None
    if site.device not in ("cpu", "cuda"):
        return f"not tried on {site.device} devices"
    if site.autocast_by_user:
        return f"the script uses autocast ({site.autocast_by_user}) itself"
    if site.grad_scaler_by_user:
        return "the script scales its loss itself"
    if any(optimizer.uses_closure for optimizer in site.optimizers):
        return "an optimizer evaluates the loss several times a step (closure) and needs exact values"
    if site.double_backward:
        return "the script differentiates gradients (create_graph=True), which half precision spoils"
    return _dtype_reason({dtype for module in site.modules for dtype in module.dtypes})


def rounding(options: PrecisionOptions) -> float:
    """Unit roundoff: bfloat16 keeps 8 bits of significand, float16 keeps 11."""
    return 2.0**-8 if options.dtype == "bfloat16" else 2.0**-11


def _dtype_reason(dtypes: set[str]) -> str | None:
    if not dtypes:
        return None
    if dtypes & {"bfloat16", "float16"}:
        return "weights are in half precision already"
    if any(dtype.startswith("complex") for dtype in dtypes):
        return "the model has complex parameters"
    if "float32" not in dtypes:
        return f"the parameters are {', '.join(sorted(dtypes))}, and autocast changes float32 only"
    return None


def _cuda_has_bfloat16(machine: MachineRecord) -> bool:
    """True from compute capability 8.0 on; by the names of the older ones, as the parent does not load CUDA."""
    older = ("V100", "T4", "P100", "P40", "P4", "GTX", "RTX 20", "TITAN", "RTX 8000", "RTX 6000", "RTX 5000", "K80")
    newer = ("Ada", "Blackwell")
    name = machine.device_name
    return any(word in name for word in newer) or not any(word in name for word in older)


SPEC = Spec(
    name="precision",
    summary="Matrix products and convolutions in bfloat16 (or float16 with loss scaling), weights in float32",
    options=PrecisionOptions,
    stage=Stage.MODEL,
    numerics=Numerics.ROUNDING,
    apply="fulltilt.techniques.precision.apply:apply",
    candidates=candidates,
    unavailable=unavailable,
    bound=forward_backward_bound,
    rounding=rounding,
    after=("channels_last",),
)

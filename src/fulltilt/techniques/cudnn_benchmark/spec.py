"""cuDNN's own search: what it is, where it fits. Readable without torch."""

from dataclasses import dataclass

from fulltilt.technique import MachineRecord, Numerics, PhaseRecord, SiteRecord, Spec, Stage, forward_backward_bound


@dataclass(frozen=True, kw_only=True, slots=True)
class CudnnBenchmarkOptions:
    """Settings of `cudnn_benchmark`: none, it is on or off."""


def candidates(machine: MachineRecord, site: SiteRecord, phases: PhaseRecord) -> tuple[CudnnBenchmarkOptions, ...]:
    """On, wherever it is available."""
    return (CudnnBenchmarkOptions(),) if unavailable(machine, site) is None else ()


def unavailable(machine: MachineRecord, site: SiteRecord | None) -> str | None:
    """It is for convolutions of stable shapes on CUDA."""
    device = machine.device if site is None else site.device
    if device != "cuda":
        return "cuDNN computes on CUDA devices only"
    if site is None:
        return None
    if not any(layer.startswith("Conv") for module in site.modules for layer in module.layer_counts):
        return "no convolutions"
    if any(not module.stable_shapes for module in site.modules):
        return "input shapes vary, and it searches anew for each shape"
    return None


SPEC = Spec(
    name="cudnn_benchmark",
    summary="cuDNN times its convolution algorithms on the first calls and takes the fastest",
    options=CudnnBenchmarkOptions,
    stage=Stage.BACKEND,
    numerics=Numerics.ROUNDING,
    apply="fulltilt.techniques.cudnn_benchmark.apply:apply",
    candidates=candidates,
    unavailable=unavailable,
    bound=forward_backward_bound,
)

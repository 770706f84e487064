"""CPU threads: what they are, where another number fits. Readable without torch."""

from dataclasses import dataclass

from fulltilt.technique import MachineRecord, Numerics, PhaseRecord, SiteRecord, Spec, Stage


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuThreadsOptions:
    """Settings of `cpu_threads`."""

    num_threads: int | None = None
    """Threads of one operation; None leaves torch's choice."""
    flush_denormal: bool = False
    """Treat numbers below 1.2e-38 as zero: they are slow on many CPUs."""
    affinity: bool = False
    """Keep the process on as many of its allowed CPUs as it has threads."""


def candidates(machine: MachineRecord, site: SiteRecord, phases: PhaseRecord) -> tuple[CpuThreadsOptions, ...]:
    """One thread, half of the CPUs and all of them, as far as that is not so already."""
    if site.device != "cpu":
        return ()
    numbers = dict.fromkeys((machine.num_cpus // 2, machine.num_cpus, 1))
    return tuple(CpuThreadsOptions(num_threads=n) for n in numbers if n > 0 and n != machine.num_threads)


def unavailable(machine: MachineRecord, site: SiteRecord | None) -> str | None:
    """One CPU leaves no choice, and a model on a GPU does not compute on them."""
    if machine.num_cpus < 2:
        return "this machine has one CPU"
    if site is not None and site.device != "cpu":
        return f"the model computes on {site.device}"
    return None


SPEC = Spec(
    name="cpu_threads",
    summary="Another number of CPU threads for each operation",
    options=CpuThreadsOptions,
    stage=Stage.ENV,
    numerics=Numerics.ROUNDING,
    apply="fulltilt.techniques.cpu_threads.apply:apply",
    candidates=candidates,
    unavailable=unavailable,
)

"""Loading in other processes: what it is, where it fits. Readable without torch."""

from dataclasses import dataclass

from fulltilt.technique import MachineRecord, Numerics, PhaseRecord, SiteRecord, Spec, Stage

_WORTH_IT = 0.03
"""Share of the step spent waiting for data below which nothing is tried."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataloaderOptions:
    """Settings of `dataloader`, as in torch; None leaves what the script says."""

    num_workers: int | None = None
    prefetch_factor: int | None = None
    persistent_workers: bool | None = None
    """Keep workers from epoch to epoch. They then do not see what the script changes in its dataset in between."""
    pin_memory: bool | None = None
    in_memory: bool = False
    """Also for datasets that lie in memory as tensors."""


def candidates(machine: MachineRecord, site: SiteRecord, phases: PhaseRecord) -> tuple[DataloaderOptions, ...]:
    """A few numbers of workers where the loop waits for data; pinned memory on CUDA."""
    if unavailable(machine, site) is not None:
        return ()
    if phases.data_wait is not None and phases.data_wait < _WORTH_IT * phases.step_seconds:
        return ()
    present = {loader.num_workers for loader in site.loaders if not (loader.iterable or loader.in_memory)}
    numbers = dict.fromkeys(n for n in (min(4, machine.num_cpus), machine.num_cpus, 2) if 0 < n <= 16)
    pin = True if site.device == "cuda" else None
    return tuple(DataloaderOptions(num_workers=n, pin_memory=pin) for n in numbers if present != {n})


def unavailable(machine: MachineRecord, site: SiteRecord | None) -> str | None:
    """Why no loader of this script can have workers."""
    if site is None:
        return None
    if not site.loaders:
        return "no DataLoader"
    if all(loader.iterable for loader in site.loaders):
        return "an IterableDataset would be repeated by each worker"
    if all(loader.iterable or loader.in_memory for loader in site.loaders):
        return "the data lies in memory as tensors, workers would only copy it"
    return None


def bound(phases: PhaseRecord, site: SiteRecord) -> float:
    """Waiting for data at no cost at all."""
    if phases.data_wait is None:
        return float("inf")
    rest = phases.step_seconds - phases.data_wait
    return phases.step_seconds / rest if rest > 0 else float("inf")


SPEC = Spec(
    name="dataloader",
    summary="Batches made by worker processes ahead of time, and pinned memory on CUDA",
    options=DataloaderOptions,
    stage=Stage.DATA,
    numerics=Numerics.ROUNDING,
    apply="fulltilt.techniques.dataloader.apply:apply",
    candidates=candidates,
    unavailable=unavailable,
    bound=bound,
    changes_draws=True,
)

"""What a result says of the machine, the script and the time of a step, as rows to read."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fulltilt.records.record import PhaseRecord, SiteRecord
from fulltilt.records.result import MachineRecord, TuneResult
from fulltilt.report.words import count_words, protection_words
from fulltilt.units import format_seconds

Fact = tuple[str, str]
"""A label, and what is known."""

_PHASE_WORDS = {
    "data_wait": "waiting for data",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "other": "everything else",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseShare:
    """One phase of a step."""

    key: str
    label: str
    seconds: float | None
    """None: not measured."""
    share: float | None
    """Of the step's wall time, 0 to 1; None: not measured."""

    @property
    def words(self) -> str:
        """ "41 ms, 37 %", or "not measured"."""
        if self.seconds is None or self.share is None:
            return "not measured"
        return f"{format_seconds(self.seconds)}, {100 * self.share:.0f} %"


def phase_shares(phases: PhaseRecord) -> tuple[PhaseShare, ...]:
    """All phases in the order in which a step goes through them, measured or not."""
    return tuple(_share(key, label, phases) for key, label in _PHASE_WORDS.items())


def _share(key: str, label: str, phases: PhaseRecord) -> PhaseShare:
    seconds: float | None = getattr(phases, key)
    if seconds is None or not math.isfinite(seconds):
        return PhaseShare(key=key, label=label, seconds=None, share=None)
    share = seconds / phases.step_seconds if phases.step_seconds > 0 else None
    return PhaseShare(key=key, label=label, seconds=seconds, share=share)


def machine_facts(machine: MachineRecord) -> list[Fact]:
    """The machine and its versions; what is not known is left out."""
    threads = count_words(machine.num_threads, "torch thread") if machine.num_threads is not None else ""
    memory = f"{machine.memory_bytes / 2**30:.1f} GiB" if machine.memory_bytes > 0 else ""
    facts = [
        ("Processor", f"{machine.cpu}, {machine.num_cpus} logical CPUs" if machine.cpu else ""),
        ("Device", " ".join(filter(None, [machine.device, machine.device_name]))),
        ("Memory", memory),
        ("Threads", threads),
        ("CPU features", machine.cpu_capability),
        ("System", machine.system),
        ("torch", machine.torch),
        ("Python", machine.python),
        ("Machine id", machine.hostname_hash),
    ]
    return _known(facts)


def site_facts(site: SiteRecord | None) -> list[Fact]:
    """What was found in the script: models, optimizers, loaders."""
    if site is None:
        return []
    models = [f"{module.class_name}, {module.num_parameters:,} parameters" for module in site.modules]
    optimizers = [f"{optimizer.class_name}, {optimizer.implementation}" for optimizer in site.optimizers]
    loaders = [
        f"{loader.dataset_class}, batch size {loader.batch_size or 'none'}, {count_words(loader.num_workers, 'worker')}"
        for loader in site.loaders
    ]
    facts = [
        ("Model", "; ".join(models)),
        ("Optimizer", "; ".join(optimizers)),
        ("Data", "; ".join(loaders)),
        ("Autocast of its own", site.autocast_by_user),
        ("Processes", str(site.world_size) if site.world_size > 1 else ""),
    ]
    return _known(facts)


def tune_facts(result: TuneResult) -> list[Fact]:
    """How it was measured."""
    step = format_seconds(result.baseline_step_seconds) if result.baseline_step_seconds > 0 else "not measured"
    facts = [
        ("Step as it is", step),
        ("A/A floor", floor_words(result.aa_floor)),
        ("The tune took", format_seconds(result.wall_seconds)),
        ("Trials", str(len(result.trials))),
        ("Your files", protection_words(result.protection)),
    ]
    return _known(facts)


def floor_words(floor: float) -> str:
    """How much two identical runs differ here."""
    return f"{100 * floor:.1f} %" if floor > 0 else "not measured"


def floor_sentence(floor: float) -> str:
    """The A/A floor as a sentence."""
    if floor > 0:
        return f"Two identical runs differ here by {floor_words(floor)}."
    return "How far two identical runs differ here was not measured."


def _known(facts: list[Fact]) -> list[Fact]:
    return [(label, value) for label, value in facts if value]

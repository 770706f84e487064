"""`result.json`: what a tune hands back."""

from dataclasses import dataclass, field
from typing import Any

from fulltilt.records.journal import SpeedupInterval, TrialRecord, VerdictRecord
from fulltilt.records.record import PhaseRecord, SiteRecord
from fulltilt.records.request import TechniqueChoice
from fulltilt.records.words import Protection, TechniqueOutcome

RESULT_SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineRecord:
    """Where it was measured."""

    hostname_hash: str
    """Tells two machines apart without naming them."""
    system: str
    cpu: str
    num_cpus: int
    memory_bytes: int
    python: str = ""
    torch: str = ""
    device: str = ""
    device_name: str = ""
    num_threads: int | None = None
    cpu_capability: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TechniqueResult:
    """One technique with one set of options, tried or not, and why."""

    name: str
    options: dict[str, Any]
    outcome: TechniqueOutcome
    reason: str
    speedup: SpeedupInterval | None = None
    """Against the incumbent of its moment."""
    verdict: VerdictRecord | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AblationResult:
    """What the recipe loses without one of its members: speed of the recipe over speed of the recipe without it."""

    name: str
    contribution: SpeedupInterval | None
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeResult:
    techniques: tuple[TechniqueChoice, ...]
    fingerprint: dict[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProtectionRecord:
    """What kept trials from changing the user's files."""

    means: Protection
    reason: str = ""
    """Why there was no overlay, when there was none."""
    redirected: tuple[str, ...] = ()
    """With an overlay: folders that could have none, and where writes were redirected in Python instead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneResult:
    """Everything a tune found, as written to `result.json`."""

    command: tuple[str, ...]
    machine: MachineRecord
    baseline_step_seconds: float
    speedup: SpeedupInterval
    """The recipe against the command as it is, from fresh processes."""
    verdict: VerdictRecord
    recipe: RecipeResult
    techniques: tuple[TechniqueResult, ...]
    ablation: tuple[AblationResult, ...]
    break_even_steps: int | None
    """Steps after which the extra start-up of the recipe has paid for itself: 0 when it starts no more slowly, None
    when that was not measured."""
    trials: tuple[TrialRecord, ...]
    wall_seconds: float
    summary: str
    """One or two sentences: what came out."""
    phases: PhaseRecord | None = None
    site: SiteRecord | None = None
    aa_floor: float = 0.0
    """The relative difference that two identical runs of this command show here: smaller wins are not claimed."""
    confirmed: bool = False
    """Was the speed-up measured again in fresh processes?"""
    finished: bool = True
    """False when interrupted or out of budget before all was tried."""
    protection: ProtectionRecord | None = None
    """None in results of versions that did not tell."""
    warnings: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    schema: int = RESULT_SCHEMA

"""What search needs of whoever runs trials: two protocols, with a Subprocess and a Mock implementation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fulltilt.records.journal import Block, TrialRecord
from fulltilt.records.record import WorkerRecord
from fulltilt.records.request import EvidenceRequest, TechniqueChoice
from fulltilt.records.result import ProtectionRecord
from fulltilt.records.words import Outcome, Role


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialPlan:
    """One trial to start."""

    trial: str
    role: Role
    techniques: tuple[TechniqueChoice, ...] = ()
    evidence: EvidenceRequest | None = None
    profile_steps: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """The trial has recorded its evidence, and waits at the end of a step."""

    num_steps: int
    step_seconds: tuple[float, ...]
    seconds_to_ready: float
    """From the start of the process, evidence and profile included; pauses are not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """The trial's process has ended."""

    outcome: Outcome
    message: str = ""
    """One or two sentences: what happened, and what can be done."""
    exit_status: int | None = None
    num_steps: int = 0


class LiveTrial(Protocol):
    """A trial that has been started and not yet closed. Paused whenever none of these calls is running."""

    @property
    def plan(self) -> TrialPlan: ...

    @property
    def record(self) -> WorkerRecord | None:
        """What the worker has written so far."""

    @property
    def ended(self) -> Ended | None:
        """How the process ended, once it has."""

    @property
    def num_steps(self) -> int:
        """Training steps made so far."""

    @property
    def not_finite_steps(self) -> tuple[int, int] | None:
        """First and last step of the block in which weights became nan or infinite; None while all are finite."""

    def wait_ready(self, deadline: float) -> Ready | Ended:
        """Let it run until it is ready. `deadline` is a time of the executor's clock."""

    def run_block(self, num_steps: int, deadline: float) -> Block | Ended:
        """Let it make `num_steps` steps; None of the time it is paused counts."""

    def close(self) -> TrialRecord:
        """End it, with all its processes, and say how it went. A second call returns the same record."""


class Executor(Protocol):
    """Starts trials."""

    @property
    def protection(self) -> ProtectionRecord | None:
        """What keeps trials from changing the user's files; None where nothing is run."""

    def now(self) -> float:
        """Seconds on the executor's clock: monotonic time, or simulated time."""

    def start(self, plan: TrialPlan) -> LiveTrial: ...

    def close(self) -> None:
        """End every trial that still lives."""

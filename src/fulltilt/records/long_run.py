"""The long check: its lines in the journal, and `verify.json`, what it hands back."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fulltilt.records.curve import CurveRecord
from fulltilt.records.record import AppliedRecord, Environment
from fulltilt.records.request import TechniqueChoice
from fulltilt.records.result import MachineRecord
from fulltilt.records.words import Outcome

LONG_RUN_SCHEMA = 1


class Judgement(StrEnum):
    """What a long check says."""

    EQUIVALENT = "equivalent"
    """The difference is shown to be within the margin."""
    DIFFERENT = "different"
    """A difference is shown, and not shown to be within the margin; or one of the two does not train to its end."""
    UNDECIDED = "undecided"
    """Neither: the interval is too wide."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PrintedSeries:
    """One number of the command's own output, each time that it was printed."""

    label: str
    """The words in front of it: "val loss"."""
    line: str
    """The line that it stands in, with # for its numbers."""
    values: tuple[float, ...]
    resolution: float
    """One unit of its last digit: what rounding in print can differ by."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """One finished long run of the command, as it is or under the recipe."""

    key: str
    """Identity of the run: which command, how many steps, which seed."""
    techniques: tuple[TechniqueChoice, ...]
    seed: int
    nudge: float
    """Relative size of the noise on the initial weights; 0 is none."""
    num_steps_asked: int
    outcome: Outcome
    message: str = ""
    exit_status: int | None = None
    curve: CurveRecord | None = None
    printed: tuple[PrintedSeries, ...] = ()
    left_out: tuple[str, ...] = ()
    """Names of printed numbers that are not judged."""
    applied: tuple[AppliedRecord, ...] = ()
    environment: Environment | None = None
    wall_seconds: float = 0.0
    schema: int = LONG_RUN_SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class Equivalence:
    """Means of paired runs against each other: what B has more than A, with an interval, against a margin."""

    num_pairs: int
    mean_a: float
    mean_b: float
    difference: float
    low: float
    """Ends of the interval of the difference, at `confidence`."""
    high: float
    confidence: float
    margin: float
    spread: float
    """Standard deviation between runs of A."""
    p_difference: float
    """Two-sided, of "there is no difference"."""
    power: float
    """The chance that equivalence would have been shown, had there been no difference."""
    num_pairs_needed: int | None = None
    """How many would decide, if these are typical; None where that is beyond reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SeriesResult:
    """One number that was judged: a part of a loss curve, or an evaluation."""

    name: str
    source: str
    """Where it comes from: "loss", "evaluation" or "output"."""
    decisive: bool
    """Equivalence is asked of it; otherwise only a difference counts."""
    judgement: Judgement
    reason: str
    equivalence: Equivalence | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CurveBand:
    """A loss curve of all runs, for a chart: for each bin of steps the lowest, mean and highest of the runs."""

    name: str
    bin_steps: tuple[int, ...]
    """Last step of each bin."""
    a: tuple[tuple[float, float, float], ...]
    b: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LongCheckRun:
    """A run without its curve, for a table."""

    arm: str
    """ "a", the command as it is, or "b", under the recipe."""
    seed: int
    outcome: Outcome
    message: str
    num_steps: int
    wall_seconds: float
    final_loss: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LongCheckResult:
    """Everything a long check found, as written to `verify.json`."""

    command: tuple[str, ...]
    recipe: tuple[TechniqueChoice, ...]
    num_steps_asked: int
    num_runs_asked: int
    judgement: Judgement
    summary: str
    """One or two sentences: what came out."""
    series: tuple[SeriesResult, ...]
    runs: tuple[LongCheckRun, ...]
    bands: tuple[CurveBand, ...]
    machine: MachineRecord
    finished: bool
    """False when interrupted or out of budget before all runs were made."""
    nudge: float = 0.0
    margin_asked: float | None = None
    """Relative; None is the default margin."""
    applied: tuple[AppliedRecord, ...] = ()
    """What the techniques did in a run under the recipe."""
    not_judged: tuple[str, ...] = ()
    """Numbers of the output that were seen and left out, and why."""
    notes: tuple[str, ...] = ()
    wall_seconds: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)
    schema: int = LONG_RUN_SCHEMA

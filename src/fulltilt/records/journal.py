"""The lines of a journal: what a tune found out, in the order in which it found it."""

from dataclasses import dataclass, field

from fulltilt.records.request import TechniqueChoice
from fulltilt.records.words import Numerics, Outcome, Role

JOURNAL_SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRecord:
    """One process of the user's command that has ended."""

    trial: str
    role: Role
    techniques: tuple[TechniqueChoice, ...]
    outcome: Outcome
    message: str = ""
    """What happened, in one or two sentences, when the outcome is not a good one."""
    exit_status: int | None = None
    num_steps: int = 0
    wall_seconds: float = 0.0
    startup_seconds: float | None = None
    schema: int = JOURNAL_SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One run of steps of one process in a lockstep."""

    num_steps: int
    seconds: float
    """Wall time of these steps."""
    cpu_seconds: float | None = None
    """CPU time of the process tree meanwhile."""
    foreign_cpu_seconds: float | None = None
    """CPU time that everything else on the machine used meanwhile, stolen time included."""
    step_seconds: tuple[float, ...] = ()

    @property
    def seconds_per_step(self) -> float:
        return self.seconds / self.num_steps


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedBlock:
    """The same number of steps of A and of B, one right after the other."""

    a: Block
    b: Block
    a_first: bool
    busy: bool = False
    """Something else was using the machine in one of the two: counted, but not used for the estimate."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PairRecord:
    """One pair of processes and its blocks: one restart."""

    a_trial: str
    b_trial: str
    blocks: tuple[PairedBlock, ...]
    """After warm-up."""
    warmup_steps: int = 0
    a_warmup_seconds: float = 0.0
    """How much longer A's warm-up took than the same steps would have taken once warm."""
    b_warmup_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedupInterval:
    """How many times faster B is than A: time of A over time of B."""

    median: float
    low: float
    high: float
    confidence: float
    num_pairs: int
    num_blocks: int
    """Blocks used, busy ones left out."""
    num_busy_blocks: int = 0
    p_value: float = 1.0
    """Two-sided, of "A and B are equally fast"."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictRecord:
    """Are the numbers still right?"""

    numerics: Numerics = field(metadata={"json": "class"})
    """The class that was tested."""
    kept: bool
    evidence: tuple[str, ...]
    """One sentence for each kind of evidence: measured value, allowed value, the parameter, buffer or step meant."""
    broken: tuple[str, ...] = ()
    """Those of the sentences that speak against it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonRecord:
    """A finished comparison: recipe B (the candidate) against recipe A (the incumbent)."""

    key: str
    """Identity of the question: equal questions are asked once."""
    a: tuple[TechniqueChoice, ...]
    b: tuple[TechniqueChoice, ...]
    pairs: tuple[PairRecord, ...] = ()
    speedup: SpeedupInterval | None = None
    verdict: VerdictRecord | None = None
    failure: str = ""
    """Why there is no speed-up, when there is none."""
    failure_outcome: Outcome | None = None
    no_effect: str = ""
    """Why a technique of B had no effect, when that is so."""
    details: dict[str, str] = field(default_factory=dict)
    """Technique -> what it did, from the worker."""
    wall_seconds: float = 0.0
    partial: bool = False
    """One pair of a comparison that needs several: kept, so that a resumed tune does not run it again."""
    in_turn: bool = False
    """No two runs were alive at once."""
    schema: int = JOURNAL_SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class StartRecord:
    """The first line of a journal: what is tuned. A journal is resumed only for the same command."""

    command: tuple[str, ...]
    cwd: str
    version: str
    started: str
    options: dict[str, str] = field(default_factory=dict)
    schema: int = JOURNAL_SCHEMA

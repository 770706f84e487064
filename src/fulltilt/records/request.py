"""What the parent asks of a worker: `request.json`, found through the environment variable FULLTILT_REQUEST."""

from dataclasses import dataclass, field
from typing import Any

REQUEST_VARIABLE = "FULLTILT_REQUEST"
TRIAL_VARIABLE = "FULLTILT_TRIAL"
"""Set to "1" in trials, so that a script can tell."""

SCRATCH_VARIABLE = "FULLTILT_SCRATCH"
"""In trials: a folder of its own, for what processes leave for the parent, and for files that are redirected."""

OVERLAID_VARIABLE = "FULLTILT_OVERLAID"
"""In trials under an overlay: JSON with `overlaid`, the folders where nothing need be redirected, and `redirected`, the
folders that have no overlay, in which writes are redirected in Python as they are everywhere where this is not set."""

REQUEST_SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class TechniqueChoice:
    """One line of a recipe: a technique with its options, those at their default left out."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceRequest:
    """What numbers to record in the first steps, and how the run is to be disturbed meanwhile."""

    num_steps: int = 8
    perturb_relative: float = 0.0
    """Each floating-point weight is multiplied by 1 + u + v before the first step, u uniform in +-perturb_relative for
    each element and v for each tensor, and each gradient gets noise of that size relative to its root mean square
    before every step. A factor of a whole tensor is rounded too: the norm of spectral normalization, say."""
    perturb_seed: int = 0
    reseed: int | None = None
    """Seed every random stream with this when training begins, after the weights are made: at the first training call,
    or when a loader is iterated for the first time after an optimizer was made, if that is earlier."""
    tie_draws: bool = False
    """Techniques that draw other random numbers are to draw those of the untouched script, where they can."""
    whole_curve: bool = False
    """A long run: record the loss of every step and every evaluation, cheaply, instead of all numbers of a few steps.
    `reseed` then is the seed of the whole run, from the import of torch on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRequest:
    """The part of a request that only trials have: how to measure, and where to leave what was seen."""

    trial: str
    directory: str
    """Scratch of this trial: `record.json` is written here, files the script writes are kept here."""
    control: str
    """Path of the parent's Unix socket."""
    evidence: EvidenceRequest | None = None
    seed: int | None = 0
    """Seeds torch, `random` and NumPy when torch is imported, so that scripts without a seed repeat too."""
    profile_steps: int = 0
    """Steps after the evidence in which phases are timed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a worker is to do to the user's command."""

    techniques: tuple[TechniqueChoice, ...] = ()
    trial: TrialRequest | None = None
    """None in production (`fulltilt run`): apply the techniques, measure nothing, write nothing."""
    state_file: str | None = None
    """In production: where to write what was applied, as JSON. None writes nothing."""
    schema: int = REQUEST_SCHEMA

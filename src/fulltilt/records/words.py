"""The closed sets of words that records, recipes and reports share."""

from enum import StrEnum


class Numerics(StrEnum):
    """How far a technique may move the numbers, and so the evidence that its verdict needs."""

    EXACT = "EXACT"
    """The same numbers, within the run's own noise."""
    ROUNDING = "ROUNDING"
    """The same computation, rounded differently."""
    LOSSY = "LOSSY"
    """Another computation; only on request, judged by the loss curve."""


class Outcome(StrEnum):
    """How a trial ended."""

    FINISHED = "finished"
    """It did all the steps that were asked and was stopped by us."""
    ENDED = "ended"
    """The command ended by itself after training, with exit status 0 or one of its own choice."""
    NO_TRAINING = "no_training"
    """The command ended with exit status 0, and no training step was seen."""
    EXCEPTION = "exception"
    """The command ended with another exit status."""
    SIGNAL = "signal"
    """The command was killed by a signal."""
    OUT_OF_MEMORY = "out_of_memory"
    """The device or the host ran out of memory."""
    COMPILE_FAILED = "compile_failed"
    """torch.compile failed."""
    DISK_FULL = "disk_full"
    """There was no room for what the command wrote, on the disk where trials keep it or on its own."""
    NOT_FINITE = "not_finite"
    """Weights became nan or infinite, where those of the run beside it did not; we ended it."""
    HANG = "hang"
    """No step for too long; we ended it."""
    OUT_OF_BUDGET = "out_of_budget"
    """The time that we had for it was over; this says nothing about the command."""
    NOT_STARTED = "not_started"
    """The command could not be started."""


class TechniqueOutcome(StrEnum):
    """What became of a technique in a tune."""

    KEPT = "kept"
    NO_GAIN = "no_gain"
    NO_EFFECT = "no_effect"
    BROKE_NUMERICS = "broke_numerics"
    FAILED = "failed"
    REFUSED = "refused"
    UNTRIED = "untried"


class Protection(StrEnum):
    """What keeps trials from changing the user's files."""

    OVERLAY = "overlay"
    """Whatever a trial writes, by any program, lands in a layer that is thrown away."""
    REDIRECTED = "redirected"
    """What Python, torch and safetensors write is sent elsewhere; other programs and libraries are not held."""


class Role(StrEnum):
    """What a trial is run for."""

    BASELINE = "baseline"
    """The command as it is."""
    REPEAT = "repeat"
    """The command as it is, once more: its own noise, in numbers and in time."""
    ROUNDING = "rounding"
    """The command with its weights perturbed at the rounding of a precision: the rounding envelope."""
    SAMPLING = "sampling"
    """The command with other random numbers from the first training step on: the sampling envelope."""
    EXAMINED = "examined"
    """The command under a recipe, for its numbers alone: for longer, and with the untouched one's random numbers."""
    CANDIDATE = "candidate"
    """The command under a recipe."""

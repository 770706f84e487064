"""What ends of trials mean for the search: whose fault they are, and what is said of them."""

from __future__ import annotations

import dataclasses

from fulltilt.errors import CommandFailed, FulltiltError, StorageError
from fulltilt.records.words import Outcome, Role
from fulltilt.trials.contract import Ended, LiveTrial

GOOD_ENDS = (Outcome.FINISHED, Outcome.ENDED)


class EnvelopeFailed(FulltiltError):
    """A run has failed that was made for its numbers alone: to tell how far they may move, or to judge a recipe."""

    def __init__(self, trial: str, role: Role, ended: Ended | None) -> None:
        said = say(ended) if ended is not None else "nothing was recorded"
        super().__init__(f"the run {trial}, made for its numbers, failed: {said}")
        self.role = role
        self.out_of_budget = ended is not None and ended.outcome is Outcome.OUT_OF_BUDGET


def command_failed(ended: Ended | None) -> CommandFailed:
    """The error for a command that does not train by itself."""
    if ended is None or ended.outcome in (Outcome.ENDED, Outcome.FINISHED):
        return CommandFailed("the command trained, but left no record", hint="Is its folder for temporary files full?")
    if ended.outcome is Outcome.OUT_OF_BUDGET:
        return CommandFailed(f"the command could not be measured: {say(ended)}")
    if ended.outcome is Outcome.NO_TRAINING:
        return CommandFailed(
            "the command ended without a training step that fulltilt could see",
            hint="A step is seen when torch (Python 3.11 or newer) calls backward or an optimizer's step. "
            "Is this the command that trains? Python's flags -I, -E and -S keep fulltilt out.",
        )
    return CommandFailed(f"the command fails by itself, without fulltilt's help: {say(ended)}")


def expect_room(ended: Ended | None) -> None:
    """A full disk says nothing about the command or a technique, and the next trial would find it full, too."""
    if ended is not None and ended.outcome is Outcome.DISK_FULL:
        raise StorageError(
            f"there was no room for what the command writes: {say(ended)}",
            hint="Free some space, or point TMPDIR at another disk; then go on with the same --out. "
            "Finished trials are kept.",
        )


def of_the_other(ended: Ended | None) -> Ended | None:
    """It was A that failed: no fault of what B adds."""
    return dataclasses.replace(ended, message=f"the run beside it failed: {say(ended)}") if ended is not None else None


def diverged(a: LiveTrial, b: LiveTrial) -> Ended | None:
    """Are B's weights nan or infinite at a step at which A's still were not?"""
    of_a, of_b = a.not_finite_steps, b.not_finite_steps
    if of_b is None or (of_a is not None and of_a[0] <= of_b[1]):
        return None
    others = "are not" if of_a is None else f"did so only in steps {of_a[0]} to {of_a[1]}"
    return Ended(
        outcome=Outcome.NOT_FINITE,
        message=f"weights became nan or infinite in steps {of_b[0]} to {of_b[1]}; those of the run beside it {others}",
        num_steps=b.num_steps,
    )


def say(ended: Ended) -> str:
    return ended.message or ended.outcome.value.replace("_", " ")

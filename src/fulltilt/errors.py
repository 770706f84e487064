"""Every error that fulltilt raises on purpose, with the exit status it ends in.

    FulltiltError               1  something went wrong that is not covered below
    +-- UsageError              2  the call is wrong: a missing file, two tunes in one folder, a bad flag
    |   +-- RecipeError         2  a recipe that cannot be read or does not fit this version
    +-- CommandFailed           3  the user's command fails, or never trains, without any technique applied
    +-- StorageError            1  the disk is full, or the folder cannot be written

A message says what happened with the value; `hint` says what is allowed or what to do next.

The long check (`fulltilt tune --verify`) ends in 0 for equivalent, 1 for different (as `diff` does), 4 for undecided.
"""

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_COMMAND_FAILED = 3
EXIT_DIFFERENT = 1
EXIT_UNDECIDED = 4
EXIT_INTERRUPTED = 130


class FulltiltError(Exception):
    """Base of all errors meant for people: `str(error)` is the message, `error.hint` what to do next."""

    exit_status = EXIT_FAILURE

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(FulltiltError):
    """The call cannot be carried out as it was written."""

    exit_status = EXIT_USAGE


class RecipeError(UsageError):
    """A recipe that cannot be read: a typo, a wrong type, a schema of the future."""


class CommandFailed(FulltiltError):
    """The user's command fails, or does not train, when it runs without any technique."""

    exit_status = EXIT_COMMAND_FAILED


class StorageError(FulltiltError):
    """The results cannot be written."""

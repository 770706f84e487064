"""Arguments that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

from fulltilt.errors import UsageError
from fulltilt.units import parse_duration

COMMAND_SETTINGS = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Everything from the first word of the user's command on is the user's."""

Command = Annotated[
    list[str],
    typer.Argument(metavar="-- CMD...", help="The training command, exactly as you run it.", show_default=False),
]
Budget = Annotated[str, typer.Option("--budget", "-b", help="How long it may take: 90s, 10m, 1h30m.")]
HangTimeout = Annotated[
    str, typer.Option("--hang-timeout", help="End a trial that makes no training step for so long.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output, and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def seconds_of(text: str, option: str) -> float:
    """A duration that somebody wrote behind `option`.

    Raises:
        UsageError: it is none.
    """
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error

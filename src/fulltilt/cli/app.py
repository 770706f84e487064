"""The `fulltilt` command: its verbs, and how errors end it."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from fulltilt import __version__
from fulltilt.cli import compare, demo, report, run, techniques, tune
from fulltilt.errors import EXIT_INTERRUPTED, FulltiltError

app = typer.Typer(
    name="fulltilt",
    help="Find the fastest settings for a PyTorch training script that leave its numbers right.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for verb in (tune, run, compare, techniques, report, demo):
    verb.register(app)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"fulltilt {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Find the fastest settings for a PyTorch training script that leave its numbers right.

    Example: fulltilt tune -- python train.py --lr 3e-4
    """


def main() -> None:
    """Run the command line; errors meant for people end in one message, without a traceback."""
    try:
        app()
    except FulltiltError as error:
        print(f"fulltilt: {error}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        print("fulltilt: interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone: nothing more to say
        sys.exit(1)


__all__ = ["app", "main"]

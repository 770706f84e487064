"""`fulltilt tune`."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fulltilt.cli.arguments import COMMAND_SETTINGS, Budget, Command, HangTimeout, Json, Quiet, seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fulltilt.search.progress import Progress


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(context_settings=COMMAND_SETTINGS)(tune)


def tune(
    command: Command,
    budget: Budget = "10m",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for results; one with an unfinished tune goes on.")
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", help="Try only these techniques, separated by commas.", show_default=False)
    ] = None,
    hang_timeout: HangTimeout = "3m",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find the fastest verified recipe for a training command.

    Runs the command in short trials, as it is and under one technique after another, keeps what is measured faster and
    numerically right, and writes recipe.yaml, report.html, report.md and result.json. Nothing of yours is overwritten.

    Example: fulltilt tune --budget 10m -- python train.py --lr 3e-4
    """
    directory = _tune(command, budget, out, only, hang_timeout, show_progress=not (quiet or json), as_json=json)
    if not json:
        print(directory / "report.html")


def _tune(
    command: list[str],
    budget: str,
    out: Path | None,
    only: str | None,
    hang_timeout: str,
    *,
    show_progress: bool,
    as_json: bool,
) -> Path:
    from fulltilt import api

    checked = api.check_command(command)
    directory = out if out is not None else api.new_directory(checked)
    try:
        with progress_shown(show_progress) as progress, terminated_as_interrupted():
            result = api.tune(
                checked,
                budget=seconds_of(budget, "--budget"),
                out=directory,
                techniques=[name.strip() for name in only.split(",")] if only else None,
                hang_seconds=seconds_of(hang_timeout, "--hang-timeout"),
                progress=progress,
            )
    except KeyboardInterrupt:
        print(
            f"fulltilt: interrupted; what is known stands in {directory}. "
            f"Go on with: fulltilt tune --out {directory} -- ...the same command...",
            file=sys.stderr,
        )
        raise typer.Exit(130) from None
    show(result, directory, as_json=as_json)
    return directory


def show(result: Any, directory: Path, *, as_json: bool) -> None:
    """Print a result: as JSON, or as one screenful."""
    if as_json:
        from fulltilt.records.codec import to_json

        print(to_json(result))
        return
    from rich.console import Console

    from fulltilt.report.terminal import print_result

    print_result(result, Console(highlight=False), str(directory))


@contextmanager
def progress_shown(wanted: bool) -> Iterator[Progress]:
    """Progress on standard error, or none."""
    if not wanted:
        from fulltilt.search.progress import Silent

        yield Silent()
        return
    from fulltilt.cli.progress import TerminalProgress

    progress = TerminalProgress()
    try:
        yield progress
    finally:
        progress.close()


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM and SIGHUP end the work as Ctrl-C does, with a report. One that is ignored (nohup) stays ignored."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    heeded = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

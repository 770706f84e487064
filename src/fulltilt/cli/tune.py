"""`fulltilt tune`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fulltilt.cli.arguments import COMMAND_SETTINGS, Command, HangTimeout, Json, Quiet, seconds_of
from fulltilt.cli.working import progress_shown, terminated_as_interrupted
from fulltilt.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(context_settings=COMMAND_SETTINGS)(tune)


def tune(
    command: Command,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget", "-b", help="How long it may take: 90s, 10m (the default), 1h30m; no limit with --verify."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for results; one with an unfinished tune goes on.")
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", help="Try only these techniques, separated by commas.", show_default=False)
    ] = None,
    verify: Annotated[
        Path | None,
        typer.Option(
            "--verify",
            metavar="RECIPE",
            help="Long check instead: train under this recipe and without it, and judge losses and evaluations.",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="With --verify: training steps of a run (1000).")
    ] = None,
    runs: Annotated[
        int | None, typer.Option("--runs", min=2, help="With --verify: runs of each, each with a seed of its own (4).")
    ] = None,
    margin: Annotated[
        str | None,
        typer.Option("--margin", help="With --verify: how far a number may move, such as 2%; 1% or what seeds do."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="With --verify: seed of the first runs (0).")
    ] = None,
    hang_timeout: HangTimeout = "3m",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find the fastest verified recipe for a training command.

    Runs the command in short trials, as it is and under one technique after another, keeps what is measured faster and
    numerically right, and writes recipe.yaml, report.html, report.md and result.json. Nothing of yours is overwritten.

    Example: fulltilt tune --budget 10m -- python train.py --lr 3e-4

    Long check: fulltilt tune --verify recipe.yaml --steps 2000 -- python train.py --lr 3e-4
    (exit status 0: equivalent, 1: different, 4: undecided)
    """
    show_progress = not (quiet or json)
    if verify is not None:
        from fulltilt.cli.verify import Wishes, run_check

        if only is not None:
            raise UsageError("--only chooses techniques to try; with --verify the recipe says them")
        wishes = Wishes(
            recipe=verify, steps=steps, runs=runs, margin=margin, seed=seed, budget=budget, hang_timeout=hang_timeout
        )
        raise typer.Exit(run_check(command, wishes, out, show_progress=show_progress, as_json=json))
    _refuse_without_verify(steps=steps, runs=runs, margin=margin, seed=seed)
    directory = _tune(command, budget or "10m", out, only, hang_timeout, show_progress=show_progress, as_json=json)
    if not json:
        print(directory / "report.html")


def _refuse_without_verify(**options: object) -> None:
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise UsageError(f"--{given[0]} belongs to the long check", hint="Name its recipe: --verify recipe.yaml.")


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

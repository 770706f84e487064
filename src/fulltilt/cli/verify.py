"""`fulltilt tune --verify`: the long check."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fulltilt.cli.arguments import seconds_of
from fulltilt.cli.working import progress_shown, terminated_as_interrupted
from fulltilt.errors import EXIT_DIFFERENT, EXIT_INTERRUPTED, EXIT_OK, EXIT_UNDECIDED, UsageError
from fulltilt.units import parse_share

if TYPE_CHECKING:
    from fulltilt.records.long_run import LongCheckResult


@dataclass(frozen=True, kw_only=True, slots=True)
class Wishes:
    """The options that `--verify` has, as they were written."""

    recipe: Path
    steps: int | None
    runs: int | None
    margin: str | None
    seed: int | None
    budget: str | None
    hang_timeout: str


def run_check(command: list[str], wishes: Wishes, out: Path | None, *, show_progress: bool, as_json: bool) -> int:
    """Carry it out, print what came out; the exit status."""
    from fulltilt import api

    checked = api.check_command(command)
    directory = out if out is not None else api.new_directory(checked)
    try:
        result = _carry_out(checked, wishes, directory, show_progress=show_progress)
    except KeyboardInterrupt:
        print(
            f"fulltilt: interrupted; finished runs stand in {directory}. "
            f"Go on with the same command and --out {directory}",
            file=sys.stderr,
        )
        return EXIT_INTERRUPTED
    show_check(result, directory, as_json=as_json)
    return _exit_status(result)


def _carry_out(command: tuple[str, ...], wishes: Wishes, directory: Path, *, show_progress: bool) -> LongCheckResult:
    from fulltilt import api

    with progress_shown(show_progress) as progress, terminated_as_interrupted():
        return api.verify(
            command,
            recipe=wishes.recipe,
            steps=wishes.steps if wishes.steps is not None else api.LONG_CHECK_STEPS,
            runs=wishes.runs if wishes.runs is not None else api.LONG_CHECK_RUNS,
            seed=wishes.seed or 0,
            margin=_margin(wishes.margin),
            budget=seconds_of(wishes.budget, "--budget") if wishes.budget is not None else None,
            out=directory,
            progress=progress,
            hang_seconds=seconds_of(wishes.hang_timeout, "--hang-timeout"),
        )


def _margin(text: str | None) -> float | None:
    try:
        return parse_share(text) if text is not None else None
    except ValueError as error:
        raise UsageError(f"--margin: {error}") from error


def show_check(result: LongCheckResult, directory: Path, *, as_json: bool) -> None:
    """Print a result: as JSON, or as one screenful."""
    if as_json:
        from fulltilt.records.codec import to_json

        print(to_json(result))
        return
    from rich.console import Console

    from fulltilt.report.long_check_terminal import print_long_check

    print_long_check(result, Console(highlight=False), str(directory))


def _exit_status(result: LongCheckResult) -> int:
    statuses = {"equivalent": EXIT_OK, "different": EXIT_DIFFERENT, "undecided": EXIT_UNDECIDED}
    return statuses[result.judgement.value]

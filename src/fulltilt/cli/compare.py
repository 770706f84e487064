"""`fulltilt compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fulltilt.cli.arguments import COMMAND_SETTINGS, Budget, Command, HangTimeout, Json, Quiet, seconds_of
from fulltilt.cli.working import progress_shown, terminated_as_interrupted

if TYPE_CHECKING:
    from fulltilt.records.journal import ComparisonRecord


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(context_settings=COMMAND_SETTINGS)(compare)


def compare(
    command: Command,
    a: Annotated[Path | None, typer.Option("--a", help="Recipe A; the command as it is, when not given.")] = None,
    b: Annotated[Path | None, typer.Option("--b", help="Recipe B; the command as it is, when not given.")] = None,
    budget: Budget = "3m",
    pairs: Annotated[int, typer.Option("--pairs", min=1, max=50, help="How many fresh pairs of processes.")] = 3,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Keep records and journal in this folder.")] = None,
    hang_timeout: HangTimeout = "3m",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure one command under two recipes against each other.

    Both run in lockstep, one paused while the other runs, in several fresh pairs of processes.

    Example: fulltilt compare --b recipe.yaml -- python train.py
    """
    from fulltilt import api

    with progress_shown(not (quiet or json)) as progress, terminated_as_interrupted():
        record = api.compare(
            command,
            a=a,
            b=b,
            budget=seconds_of(budget, "--budget"),
            pairs=pairs,
            out=out,
            hang_seconds=seconds_of(hang_timeout, "--hang-timeout"),
            progress=progress,
        )
    _show(record, as_json=json)


def _show(record: ComparisonRecord, *, as_json: bool) -> None:
    if as_json:
        from fulltilt.records.codec import to_json

        print(to_json(record))
        return
    for line in sentences(record):
        print(line)


def sentences(record: ComparisonRecord) -> list[str]:
    """The comparison, to read."""
    if record.no_effect:
        return [f"no effect: {record.no_effect}"]
    verdict = _verdict_sentences(record)
    if record.speedup is None:
        return verdict if record.verdict is not None else [f"B could not be measured: {record.failure}"]
    interval = record.speedup
    span = f"[{interval.low:.3f}, {interval.high:.3f}] at {interval.confidence:.0%}"
    if interval.low > 1.0:
        lines = [f"B is {interval.median:.3f}x faster than A {span}"]
    elif interval.high < 1.0:
        lines = [f"B is slower than A: {interval.median:.3f}x {span}"]
    else:
        lines = [f"no difference that could be told from chance: {interval.median:.3f}x {span}"]
    busy = f", {interval.num_busy_blocks} busy ones left out" if interval.num_busy_blocks else ""
    lines.append(f"{interval.num_pairs} pairs of processes, {interval.num_blocks} blocks each way{busy}")
    return lines + verdict


def _verdict_sentences(record: ComparisonRecord) -> list[str]:
    if record.verdict is None:
        return [] if not record.b else ["numbers not judged: that is done against the command as it is, and A is not"]
    headline = f"numbers {'kept' if record.verdict.kept else 'BROKEN'} ({record.verdict.numerics.value})"
    return [headline, *(f"  {sentence}" for sentence in record.verdict.broken)]

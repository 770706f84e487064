"""The result on a terminal: one screenful, in 80 columns, without colours too."""

from __future__ import annotations

import os

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fulltilt.records.result import AblationResult, TechniqueResult, TuneResult
from fulltilt.records.words import TechniqueOutcome
from fulltilt.report.printable import command_line, one_line, printable
from fulltilt.report.words import (
    break_even_words,
    choice_words,
    headline,
    in_reading_order,
    interval_words,
    outcome_words,
    speed_words,
)

_MOST_ROWS = 14
_MOST_WARNINGS = 3
_MOST_OF_A_NAME = 28
_LEAST_ROOM = 16
"""Columns under which a reason says nothing any more."""
_LABEL_WIDTH, _GAP = 8, 2
_STYLES = {
    TechniqueOutcome.KEPT: "bold green",
    TechniqueOutcome.BROKE_NUMERICS: "bold red",
    TechniqueOutcome.FAILED: "yellow",
}
_MEASURED_OUTCOMES = (TechniqueOutcome.KEPT, TechniqueOutcome.NO_GAIN)
"""Outcomes that the speed-up says best; for the others it is beside the point."""


def print_result(result: TuneResult, console: Console, directory: str) -> None:
    """Print what came out, where the report is and what to do next.

    Paths and commands are never broken into lines, so that they can be copied; the terminal wraps them.

    Args:
        directory: the folder with `report.html` and `recipe.yaml`.
    """
    _print_headline(result, console)
    if result.techniques:
        console.print()
        console.print(_techniques_table(result, console))
    console.print()
    _print_notes(result, console)
    _say_whole(console, "Report", os.path.join(directory, "report.html"))
    if result.recipe.techniques:
        recipe = command_line([os.path.join(directory, "recipe.yaml")])
        _say_whole(console, "Next", f"fulltilt run -r {recipe} -- {command_line(result.command)}", style="bold")


def _print_headline(result: TuneResult, console: Console) -> None:
    words = headline(result)
    good = result.recipe.techniques and result.verdict.kept
    console.print(_text(str(words), console, style="bold green" if good else "bold"))


def _techniques_table(result: TuneResult, console: Console) -> Table:
    techniques = in_reading_order(result.techniques)
    rows = [_cells(technique, result.aa_floor) for technique in techniques[:_MOST_ROWS]]
    widths = [max(len(row[index]) for row in rows) for index in range(3)]
    room = console.width - sum(widths) - 3 * _GAP
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, _GAP, 0, 0))
    for width in widths:
        table.add_column(no_wrap=True, min_width=width)
    table.add_column(no_wrap=True)
    for technique, (outcome, name, speed, why) in zip(techniques, rows, strict=False):
        style = _STYLES.get(technique.outcome, "")
        reason = _cut(why, room) if room >= _LEAST_ROOM else ""
        table.add_row(Text(outcome, style=style), _text(name, console), Text(speed), _text(reason, console, style="dim"))
    if len(techniques) > _MOST_ROWS:
        table.add_row("", f"and {len(techniques) - _MOST_ROWS} more")
    return table


def _cells(technique: TechniqueResult, floor: float) -> tuple[str, str, str, str]:
    measured = technique.outcome in _MEASURED_OUTCOMES and technique.speedup is not None
    return (
        outcome_words(technique, floor),
        _cut(choice_words(technique.name, technique.options), _MOST_OF_A_NAME),
        speed_words(technique, floor) if measured else "",
        one_line(technique.reason),
    )


def _print_notes(result: TuneResult, console: Console) -> None:
    if result.ablation:
        _say(console, "Worth", _ablation_words(result.ablation, result.aa_floor))
    if result.recipe.techniques:
        _say(console, "Start-up", break_even_words(result))
    said = headline(result).why
    warnings = [warning for warning in map(one_line, result.warnings) if warning != said]
    for warning in warnings[:_MOST_WARNINGS]:
        _say(console, "Warning", warning, style="yellow")
    if len(warnings) > _MOST_WARNINGS:
        _say(console, "", f"and {len(warnings) - _MOST_WARNINGS} more warnings, in the report", style="yellow")
    if not result.finished:
        _say(console, "Note", "not everything was tried", style="yellow")


def _ablation_words(ablation: tuple[AblationResult, ...], floor: float) -> str:
    return ", ".join(f"{member.name} {interval_words(member.contribution, floor)}" for member in ablation)


def _say(console: Console, label: str, text: str, *, style: str = "") -> None:
    """A labelled paragraph; wrapped lines stand under the first."""
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    grid.add_column(no_wrap=True, width=_LABEL_WIDTH)
    grid.add_column(overflow="fold")
    grid.add_row(Text(label, style="dim"), _text(text, console, style=style))
    console.print(grid)


def _say_whole(console: Console, label: str, text: str, *, style: str = "") -> None:
    """A labelled line that is never broken."""
    line = Text(label.ljust(_LABEL_WIDTH + _GAP), style="dim")
    console.print(line.append_text(_text(text, console, style=style or "none")), soft_wrap=True)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3].rstrip() + "..."


def _text(text: str, console: Console, *, style: str = "") -> Text:
    """`text` on one line, as it is: no markup, nothing that the terminal would obey or could not encode."""
    encoded = printable(text).replace("\n", " ").encode(console.encoding, errors="backslashreplace")
    return Text(encoded.decode(console.encoding), style=style)

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
    is_different,
    is_measured,
    outcome_words,
    protection_words,
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
    shown = techniques[:_MOST_ROWS]
    outcomes = [outcome_words(technique, result.aa_floor) for technique in shown]
    names = [_cut(choice_words(technique.name, technique.options), _MOST_OF_A_NAME) for technique in shown]
    room = max(_LEAST_ROOM, console.width - max(map(len, outcomes)) - max(map(len, names)) - 2 * _GAP)
    table = Table.grid(padding=(0, _GAP, 0, 0))
    for technique, outcome, name in zip(shown, outcomes, names, strict=True):
        table.add_row(
            Text(outcome, style=_STYLES.get(technique.outcome, "")),
            _text(name, console),
            _text(_cut(_finding(technique, result.aa_floor), room), console),
        )
    if len(techniques) > _MOST_ROWS:
        table.add_row("", f"and {len(techniques) - _MOST_ROWS} more")
    return table


def _finding(technique: TechniqueResult, floor: float) -> str:
    """The speed-up where it says best what came of it, and the reason where it takes one."""
    speedup, reason = technique.speedup, one_line(technique.reason)
    if speedup is None or not is_measured(speedup) or technique.outcome not in _MEASURED_OUTCOMES:
        return reason
    words = speed_words(technique, floor)
    explained = technique.outcome is TechniqueOutcome.NO_GAIN and (
        speedup.median < 1.0 or not is_different(speedup, floor)
    )
    return words if explained else f"{words}  {reason}"


def _print_notes(result: TuneResult, console: Console) -> None:
    if result.ablation:
        _say(console, "Worth", _ablation_words(result.ablation, result.aa_floor))
    if result.recipe.techniques:
        _say(console, "Start-up", break_even_words(result))
    if result.protection is not None:
        _say(console, "Files", protection_words(result.protection))
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

"""The result of a long check on a terminal."""

from __future__ import annotations

import os

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fulltilt.records.long_run import Judgement, LongCheckResult
from fulltilt.report.long_check_words import long_headline, margin_rule, series_rows
from fulltilt.report.printable import one_line, shorten

_STYLES = {"equivalent": "green", "different": "bold red", "undecided": "yellow"}
_MOST_ROWS = 16
_MOST_OF_A_NAME = 44


def print_long_check(result: LongCheckResult, console: Console, directory: str) -> None:
    """Print what came out, the numbers that decide, and where the report is."""
    style = _STYLES[result.judgement.value]
    console.print(_text(long_headline(result), console, style="bold " + style.removeprefix("bold ")))
    console.print(_text(result.summary, console))
    if result.series:
        console.print()
        console.print(_table(result, console))
    console.print()
    if result.judgement is not Judgement.DIFFERENT:
        console.print(_text(margin_rule(result), console, style="dim"))
    for note in result.notes:
        console.print(_text(f"Note: {note}", console, style="yellow"))
    report = os.path.join(directory, "verify.html")
    console.print(_text(f"Report  {report}", console), soft_wrap=True)


def _table(result: LongCheckResult, console: Console) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    rows = [row for row in series_rows(result.series) if row.judgement != "for information" and row.margin]
    for row in rows[:_MOST_ROWS]:
        table.add_row(
            Text(row.judgement, style=_STYLES.get(row.judgement, "")),
            _text(shorten(row.name, _MOST_OF_A_NAME) if len(row.name) > _MOST_OF_A_NAME + 20 else row.name, console),
            _text(f"{row.difference}, margin {row.margin}" if row.margin else row.reason, console),
        )
    if len(rows) > _MOST_ROWS:
        table.add_row("", f"and {len(rows) - _MOST_ROWS} more, in the report")
    return table


def _text(text: str, console: Console, *, style: str = "") -> Text:
    encoded = one_line(text).encode(console.encoding, errors="backslashreplace")
    return Text(encoded.decode(console.encoding), style=style)

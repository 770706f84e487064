"""The list of techniques, for `fulltilt techniques`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fulltilt.records.words import Numerics
from fulltilt.report.printable import one_line
from fulltilt.report.words import NUMERICS_WORDS, count_words


@dataclass(frozen=True, kw_only=True, slots=True)
class TechniqueRow:
    """A technique as it is listed."""

    name: str
    summary: str
    numerics: Numerics
    stage: str
    """Name of its stage: "MODEL", "OPTIMIZER", ..."""
    available: bool
    reason: str = ""
    """Why it is not available here."""


def print_techniques(rows: Sequence[TechniqueRow], console: Console) -> None:
    """Print the techniques, each with what it does, its numerics class, and whether it can be used here."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for head in ("technique", "numerics", "here"):
        table.add_column(head, no_wrap=True)
    table.add_column("what it does", overflow="fold")
    for row in rows:
        table.add_row(*_cells(row))
    console.print(table)
    console.print()
    console.print(Text(_summary(rows)))
    for numerics in sorted({row.numerics for row in rows}, key=list(Numerics).index):
        console.print(Text(f"{numerics.value}: {NUMERICS_WORDS[numerics]}.", style="dim"))


def _cells(row: TechniqueRow) -> tuple[Text, ...]:
    what = Text(one_line(row.summary))
    if not row.available:
        what.append(f"\nnot here: {one_line(row.reason) or 'no reason given'}", style="yellow")
    return (
        Text(one_line(row.name), style="bold" if row.available else "dim"),
        Text(row.numerics.value),
        Text("yes", style="green") if row.available else Text("no", style="yellow"),
        what,
    )


def _summary(rows: Sequence[TechniqueRow]) -> str:
    num_available = sum(row.available for row in rows)
    return f"{count_words(len(rows), 'technique')}, {num_available} of which can be used on this machine."

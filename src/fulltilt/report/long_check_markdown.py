"""The report of a long check as Markdown."""

from __future__ import annotations

from fulltilt.records.long_run import LongCheckResult
from fulltilt.report.facts import machine_facts
from fulltilt.report.long_check_words import how_judged, long_facts, long_headline, margin_rule, run_words, series_rows
from fulltilt.report.markdown import code, escape, table
from fulltilt.report.printable import command_line


def render_long_check_markdown(result: LongCheckResult) -> str:
    """Everything but the charts."""
    facts = [*long_facts(result), *machine_facts(result.machine)]
    parts = [
        f"# fulltilt: {escape(long_headline(result))}",
        code(command_line(result.command)),
        escape(result.summary),
        *(f"> {escape(note)}" for note in result.notes),
        "## What was judged",
        _series(result),
        f"{escape(how_judged(result))} {escape(margin_rule(result))}",
        *_not_judged(result),
        "## Runs",
        table(
            ["Run", "Seed", "Steps", "Time", "End"], [[escape(word) for word in run_words(run)] for run in result.runs]
        ),
        "## How",
        table(["What", "Value"], [[escape(label), escape(value)] for label, value in facts]),
    ]
    return "\n\n".join(parts) + "\n"


def _series(result: LongCheckResult) -> str:
    if not result.series:
        return "Nothing could be compared."
    rows = [
        [escape(row.name), row.judgement, row.plain, row.under_recipe, escape(row.difference), row.margin, row.power]
        for row in series_rows(result.series)
    ]
    return table(["Number", "Judgement", "As it is", "Recipe", "Difference, 90 %", "Margin", "Power"], rows)


def _not_judged(result: LongCheckResult) -> list[str]:
    if not result.not_judged:
        return []
    return ["Seen in the output and not judged:", "\n".join(f"- {escape(words)}" for words in result.not_judged)]

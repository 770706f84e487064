"""The report as Markdown that GitHub renders: for an issue, a pull request or a job summary."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fulltilt.records.result import TechniqueResult, TuneResult
from fulltilt.report.facts import Fact, floor_sentence, machine_facts, phase_shares, site_facts, tune_facts
from fulltilt.report.printable import command_line, one_line, shorten
from fulltilt.report.recipe_text import recipe_text
from fulltilt.report.words import (
    break_even_words,
    choice_words,
    headline,
    in_reading_order,
    interval_words,
    outcome_words,
    speed_words,
)

_MOST_CHARACTERS = 300
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$#])")


def render_markdown(result: TuneResult) -> str:
    """The report, short: it has the tables of the HTML page, and none of its charts."""
    parts = [
        f"# fulltilt: {escape(str(headline(result)))}",
        _fence(command_line(result.command), "console"),
        *_warnings(result),
        *_recipe(result),
        f"{escape(break_even_words(result))} {floor_sentence(result.aa_floor)}",
        "## Techniques",
        _techniques(result),
        *_ablation(result),
        "## Where the time of a step goes",
        _phases(result),
        "## Are the numbers still right?",
        _evidence(result),
        "## Machine, versions and script",
        _facts([*machine_facts(result.machine), *site_facts(result.site), *tune_facts(result)]),
    ]
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """`text` on one line, as Markdown that shows exactly it; also inside of a table's cell."""
    line = shorten(one_line(text), _MOST_CHARACTERS).replace("&", "&amp;")
    return _SPECIAL.sub(r"\\\1", line)


def code(text: str) -> str:
    """`text` on one line as a code span, also inside of a table's cell."""
    line = shorten(one_line(text), _MOST_CHARACTERS).replace("|", "\\|")
    fence = "`" * (_longest_run_of_backticks(line) + 1)
    air = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{air}{line}{air}{fence}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _warnings(result: TuneResult) -> list[str]:
    notes = [] if result.finished else ["Not everything was tried."]
    quoted = [f"> **Warning:** {escape(warning)}" for warning in [*notes, *result.warnings]]
    return ["\n>\n".join(quoted)] if quoted else []


def _recipe(result: TuneResult) -> list[str]:
    if not result.recipe.techniques:
        return ["There is no recipe: run the command as it is."]
    run = f"fulltilt run -r recipe.yaml -- {command_line(result.command)}"
    return ["## Recipe", _fence(recipe_text(result), "yaml"), _fence(run, "console")]


def _techniques(result: TuneResult) -> str:
    if not result.techniques:
        return "No technique was tried."
    rows = [_technique_row(technique, result.aa_floor) for technique in in_reading_order(result.techniques)]
    return table(["Technique", "Outcome", "Speed-up", "Numbers", "Why"], rows)


def _technique_row(technique: TechniqueResult, floor: float) -> list[str]:
    verdict = technique.verdict
    numbers = "not judged"
    if verdict is not None:
        numbers = f"{'kept' if verdict.kept else '**broken**'} ({verdict.numerics.value})"
    return [
        code(choice_words(technique.name, technique.options)),
        outcome_words(technique, floor),
        escape(speed_words(technique, floor)),
        numbers,
        escape(technique.reason),
    ]


def _ablation(result: TuneResult) -> list[str]:
    if not result.ablation:
        return []
    rows = [
        [code(member.name), escape(interval_words(member.contribution, result.aa_floor)), escape(member.note)]
        for member in result.ablation
    ]
    return ["## What each member is worth", table(["Member", "Contribution", "Note"], rows)]


def _phases(result: TuneResult) -> str:
    if result.phases is None:
        return "Not measured."
    return table(["Phase", "Time"], [[phase.label, phase.words] for phase in phase_shares(result.phases)])


def _evidence(result: TuneResult) -> str:
    verdict = result.verdict
    broken = [f"- **broken:** {escape(sentence)}" for sentence in verdict.broken]
    held = [f"- {escape(sentence)}" for sentence in verdict.evidence if sentence not in verdict.broken]
    return "\n".join([*broken, *held]) or "No evidence was recorded."


def _facts(facts: Sequence[Fact]) -> str:
    return table(["What", "Value"], [[escape(label), escape(value)] for label, value in facts])


def _fence(text: str, language: str) -> str:
    fence = "`" * max(3, _longest_run_of_backticks(text) + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _longest_run_of_backticks(text: str) -> int:
    return max(map(len, re.findall(r"`+", text)), default=0)

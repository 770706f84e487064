"""Writes everything a tune hands back into its folder: recipe.yaml, result.json, report.html, report.md."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from fulltilt.config.recipe import Recipe, write_recipe
from fulltilt.errors import StorageError
from fulltilt.records.codec import to_json
from fulltilt.records.journal import ComparisonRecord
from fulltilt.records.result import TuneResult
from fulltilt.records.words import TechniqueOutcome
from fulltilt.report.html import render_html
from fulltilt.report.markdown import render_markdown


def write_report(result: TuneResult, comparisons: Sequence[ComparisonRecord], directory: Path) -> None:
    """Write the four files, each whole or not at all.

    Raises:
        StorageError: one cannot be written.
    """
    files = {
        "recipe.yaml": recipe_text(result),
        "result.json": to_json(result) + "\n",
        "report.md": render_markdown(result),
        "report.html": render_html(result, comparisons),
    }
    for name, text in files.items():
        _write_whole(directory / name, text)


def recipe_text(result: TuneResult) -> str:
    """The recipe as YAML, each line with its measured gain."""
    recipe = Recipe(techniques=result.recipe.techniques, fingerprint=dict(result.recipe.fingerprint))
    header = f"{result.summary}\nRun it: fulltilt run -r recipe.yaml -- {shlex.join(result.command)}"
    return write_recipe(recipe, lambda name: _gain_of(name, result), header=_printable(header))


def _gain_of(name: str, result: TuneResult) -> str:
    for ablation in result.ablation:
        if ablation.name == name and ablation.contribution is not None:
            gain = ablation.contribution
            return f"{gain.median:.2f}x [{gain.low:.2f}, {gain.high:.2f}] in this recipe; {ablation.note}"
    for technique in result.techniques:
        if technique.name == name and technique.outcome is TechniqueOutcome.KEPT and technique.speedup is not None:
            gain = technique.speedup
            return f"{gain.median:.2f}x [{gain.low:.2f}, {gain.high:.2f}] when it was added"
    return ""


def _printable(text: str) -> str:
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")


def _write_whole(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
        part.replace(path)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="The journal is kept: free some space and run the same command with --out to this folder again.",
        ) from error

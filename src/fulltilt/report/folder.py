"""Writes what a tune hands back into its folder: recipe.yaml, result.json, report.html, report.md; or verify.*."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fulltilt.errors import StorageError
from fulltilt.records.codec import to_json
from fulltilt.records.journal import ComparisonRecord
from fulltilt.records.long_run import LongCheckResult
from fulltilt.records.result import TuneResult
from fulltilt.report.html import render_html
from fulltilt.report.long_check_html import render_long_check_html
from fulltilt.report.long_check_markdown import render_long_check_markdown
from fulltilt.report.markdown import render_markdown
from fulltilt.report.recipe_text import recipe_text


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


def write_long_check(result: LongCheckResult, directory: Path) -> None:
    """Write verify.json, verify.md and verify.html; beside the files of a tune, where it is a tune's folder.

    Raises:
        StorageError: one cannot be written.
    """
    _write_whole(directory / "verify.json", to_json(result) + "\n")
    _write_whole(directory / "verify.md", render_long_check_markdown(result))
    _write_whole(directory / "verify.html", render_long_check_html(result))


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

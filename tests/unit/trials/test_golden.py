"""Journals and results of earlier versions stay readable."""

from pathlib import Path

import pytest

from fulltilt.records.codec import from_json
from fulltilt.records.result import TuneResult
from fulltilt.trials.journal import Journal

GOLDEN = Path(__file__).resolve().parents[2] / "golden"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("journal-*.jsonl")), ids=lambda path: path.name)
def test_an_old_journal_replays(path):
    journal = Journal(path)
    assert journal.start.command
    assert journal.trials
    assert any(record.speedup is not None for record in journal.comparisons.values())


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("result-*.json")), ids=lambda path: path.name)
def test_an_old_result_reads(path):
    result = from_json(TuneResult, path.read_text(encoding="utf-8"))
    assert result.recipe.techniques
    assert result.techniques


def test_there_is_something_to_read():
    assert len(list(GOLDEN.glob("journal-*.jsonl"))) >= 1
    assert len(list(GOLDEN.glob("result-*.json"))) >= 1

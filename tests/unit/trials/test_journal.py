import os

import pytest

from fulltilt.errors import StorageError, UsageError
from fulltilt.records.journal import ComparisonRecord, StartRecord, TrialRecord
from fulltilt.records.words import Outcome, Role
from fulltilt.trials.journal import Journal

START = StartRecord(command=("python", "train.py"), cwd="/here", version="0.1.0", started="2026-01-01")


def trial(name):
    return TrialRecord(trial=name, role=Role.CANDIDATE, techniques=(), outcome=Outcome.FINISHED, num_steps=9)


def test_what_was_appended_is_replayed(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    comparison = ComparisonRecord(key="k", a=(), b=(), failure="hang")
    for line in (START, trial("001"), comparison):
        journal.append(line)
    again = Journal(tmp_path / "journal.jsonl")
    assert (again.start, again.trials, again.comparisons) == (START, [trial("001")], {"k": comparison})


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_last_line_cut_short_by_a_kill_is_dropped_and_written_over(tmp_path, cut):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.append(START)
    journal.append(trial("001"))
    os.truncate(path, path.stat().st_size - cut)
    again = Journal(path)
    assert again.trials == []
    again.append(trial("002"))
    assert [record.trial for record in Journal(path).trials] == ["002"]


def test_a_broken_line_in_the_middle_is_an_error_with_its_number(tmp_path):
    path = tmp_path / "journal.jsonl"
    Journal(path).append(START)
    path.write_text(path.read_text() + "{half\n" + path.read_text())
    with pytest.raises(UsageError, match="line 2 of"):
        Journal(path)


def test_a_journal_from_the_future_is_refused(tmp_path):
    path = tmp_path / "journal.jsonl"
    Journal(path).append(START)
    path.write_text(path.read_text().replace('"schema":1', '"schema":99') + "\n")
    with pytest.raises(UsageError, match="schema 99"):
        Journal(path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_one_clear_error(tmp_path):
    (tmp_path / "journal.jsonl").symlink_to("/dev/full")
    journal = Journal.__new__(Journal)
    journal._path, journal.trials, journal.comparisons, journal.start = tmp_path / "journal.jsonl", [], {}, None
    with pytest.raises(StorageError, match="No space left on device"):
        journal.append(START)
    assert journal.start is None

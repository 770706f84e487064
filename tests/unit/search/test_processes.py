from fulltilt.records.journal import TrialRecord
from fulltilt.records.request import TechniqueChoice
from fulltilt.records.words import Outcome, Role
from fulltilt.search.budget import Budget
from fulltilt.search.notes import Notes
from fulltilt.search.processes import Processes
from fulltilt.search.progress import Silent
from fulltilt.trials.journal import Journal
from fulltilt.trials.mock import MockExecutor, MockScript


def test_a_new_trial_never_takes_the_name_of_a_finished_one(tmp_path):
    """A killed tuner leaves trials with higher numbers than there are lines: some before them were never finished."""
    journal = Journal(tmp_path / "journal.jsonl")
    fast = (TechniqueChoice(name="fast"),)
    for name in ("002-fast", "003-fast"):
        journal.append(TrialRecord(trial=name, role=Role.CANDIDATE, techniques=fast, outcome=Outcome.FINISHED))
    executor = MockExecutor(MockScript())
    processes = Processes(
        executor,
        journal,
        budget=Budget(100, executor.now),
        progress=Silent(),
        notes=Notes(tmp_path / "pace.json"),
    )
    assert [processes.plan(fast).trial for _ in range(2)] == ["004-fast", "005-fast"]


def test_notes_of_which_half_was_written_are_not_seen(tmp_path):
    notes = Notes(tmp_path / "pace.json")
    notes.change(total_steps=12)
    (tmp_path / "pace.json.part").write_text('{"total_st')
    assert Notes(tmp_path / "pace.json").pacing.total_steps == 12

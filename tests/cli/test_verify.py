"""`fulltilt tune --verify` on real small trainings: equivalent, different, undecided; resumed; refused."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.slow

PLAIN = {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}


@pytest.fixture
def verify(tmp_path, scripts):
    """verify(words, steps=..., runs=..., more=...) -> (process, result or None)."""
    (tmp_path / "recipe.yaml").write_text("schema: 1\ntechniques:\n  fused_optimizer: {}\n")

    def run(*words, steps=120, runs=3, length=120, more=(), out="out"):
        command = [sys.executable, str(scripts / "evaluated.py"), str(length), *words]
        done = subprocess.run(
            [
                *(sys.executable, "-m", "fulltilt", "tune", "--verify", "recipe.yaml", "--steps", str(steps)),
                *("--runs", str(runs), "--quiet", "--out", out, *more, "--", *command),
            ],
            cwd=tmp_path,
            env={**os.environ, **PLAIN},
            capture_output=True,
            text=True,
            check=False,
        )
        path = tmp_path / out / "verify.json"
        return done, json.loads(path.read_text()) if path.exists() else None

    return run


def judgements(result):
    return {series["name"]: series["judgement"] for series in result["series"] if series["decisive"]}


def test_an_honest_recipe_is_equivalent_by_losses_evaluations_and_output(verify, tmp_path):
    done, result = verify()
    assert done.returncode == 0, done.stderr
    assert result["judgement"] == "equivalent"
    assert {series["source"] for series in result["series"]} == {"loss", "evaluation", "output"}
    assert set(judgements(result).values()) == {"equivalent"}
    assert any(name.startswith('printed "val loss"') for name in judgements(result))
    assert not any("s)" in name and "printed" in name for name in judgements(result))
    assert "Equivalent, by 3 pairs of runs of 120 steps" in done.stdout
    page = (tmp_path / "out" / "verify.html").read_text()
    assert page.count("<svg") >= 1 + len(result["series"])
    assert "band-b" in page
    assert "| Number | Judgement |" in (tmp_path / "out" / "verify.md").read_text()


def test_a_fault_that_begins_late_is_different_also_where_nothing_is_printed(verify):
    done, result = verify("fault:60", "silent")
    assert done.returncode == 1, done.stderr
    assert result["judgement"] == "different"
    assert "beyond chance" in done.stdout
    assert {series["source"] for series in result["series"]} == {"loss", "evaluation"}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("nan:60", "nan from step 60 on"),
        ("diverge:60", "diverges"),
        ("stop:50", "ends after 50 steps, without it after 120"),
        ("raise:50", "ValueError: a bad batch"),
    ],
)
def test_a_run_that_goes_wrong_is_different(verify, word, said):
    done, result = verify(word)
    assert done.returncode == 1, done.stderr
    assert result["judgement"] == "different"
    assert said in result["summary"]


def test_a_script_that_resists_seeds_is_said_to_and_judged_all_the_same(verify):
    done, result = verify("seeded", "fixed")
    assert done.returncode == 0, done.stderr
    assert "resists other seeds" in " ".join(result["notes"])
    assert result["nudge"] > 0


def test_runs_are_cut_at_the_steps_that_were_asked_for(verify):
    done, result = verify(steps=40, runs=2, length=1_000_000, more=("--json",))
    assert json.loads(done.stdout) == result
    assert {run["num_steps"] for run in result["runs"]} == {40}
    assert done.returncode in (0, 4)


def test_a_margin_that_is_too_narrow_is_undecided_or_different(verify):
    done, result = verify(runs=2, more=("--margin", "0.00001%"))
    assert done.returncode in (1, 4)
    assert result["margin_asked"] == pytest.approx(1e-7)


def test_a_budget_that_ends_before_the_first_run_is_undecided(verify):
    done, result = verify(more=("--budget", "1ms"))
    assert done.returncode == 4, done.stderr
    assert result["judgement"] == "undecided"
    assert result["runs"] == []
    assert "The budget ended" in done.stdout


def test_finished_runs_survive_an_interruption_and_are_not_repeated(verify, tmp_path, scripts):
    journal = tmp_path / "out" / "journal.jsonl"
    foreground = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from fulltilt.cli import main; main()"
    )
    command = [sys.executable, str(scripts / "evaluated.py"), "120"]
    started = subprocess.Popen(
        [
            *(sys.executable, "-c", foreground, "tune", "--verify", "recipe.yaml", "--steps", "120", "--runs", "3"),
            *("--quiet", "--out", "out", "--", *command),
        ],
        cwd=tmp_path,
        env={**os.environ, **PLAIN},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not (journal.exists() and '"kind":"run"' in journal.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=60)
    assert started.returncode == 130
    assert "finished runs stand in out" in said
    assert json.loads((tmp_path / "out" / "verify.json").read_text())["finished"] is False
    before = [line for line in journal.read_text().splitlines() if '"kind":"run"' in line]
    done, result = verify()
    assert done.returncode == 0, done.stderr
    after = [line for line in journal.read_text().splitlines() if '"kind":"run"' in line]
    assert after[: len(before)] == before
    assert len(after) == 6
    assert result["finished"]
    shown = subprocess.run(
        [sys.executable, "-m", "fulltilt", "report", "out"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "Equivalent" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--steps", "10"], "--steps belongs to the long check"),
        (["--verify", "nowhere.yaml"], "nowhere.yaml"),
        (["--verify", "recipe.yaml", "--only", "compile"], "the recipe says them"),
        (["--verify", "recipe.yaml", "--margin", "wide"], "--margin: 'wide' is not a share"),
        (["--verify", "recipe.yaml", "--budget", "soon"], "--budget"),
    ],
)
def test_wrong_calls_are_one_message_and_status_2(tmp_path, arguments, words):
    (tmp_path / "recipe.yaml").write_text("schema: 1\ntechniques:\n  fused_optimizer: {}\n")
    done = subprocess.run(
        [sys.executable, "-m", "fulltilt", "tune", *arguments, "--", sys.executable, "-c", "pass"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("fulltilt: ")
    assert words in done.stderr


def test_a_command_that_does_not_train_is_status_3(tmp_path):
    (tmp_path / "recipe.yaml").write_text("schema: 1\ntechniques: {}\n")
    (tmp_path / "script.py").write_text("print('hello')\n")
    done = subprocess.run(
        [sys.executable, "-m", "fulltilt", "tune", "-q", "--verify", "recipe.yaml", "--", sys.executable, "script.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "without a training step" in done.stderr

"""After a tune, everything of the user's is as it was: content, names, modes, times, links."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from belongings import looks, make_belongings
from fulltilt.trials.sandbox.protection import PROTECTION_VARIABLE, choose_protection

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "writes_everywhere.py"
MEANS = {"": "overlay", "user-namespace": "overlay", "redirect": "redirected"}


@pytest.fixture
def belongings(tmp_path):
    """(folder, home, environment) of a user."""
    folder, home = tmp_path / "me" / "project", tmp_path / "me" / "home"
    make_belongings(folder, home)
    (folder / "results").mkdir()
    with tempfile.TemporaryDirectory(prefix="tmp-") as temporary:  # short: a socket's path has 107 bytes
        yield folder, home, {**os.environ, "HOME": str(home), "TMPDIR": temporary, "OMP_NUM_THREADS": "1"}


def need_means(wanted, folder, environment):
    """Skip where the kernel does not allow this means."""
    chosen = choose_protection(
        ["true"], cwd=folder, environment={**environment, PROTECTION_VARIABLE: wanted}, results=folder
    )
    chosen.scratch.rmdir()
    if chosen.record.means.value != MEANS[wanted]:
        pytest.skip(f"not possible here: {chosen.record.reason}")


def tune(command, folder, environment):
    options = ["--quiet", "--only", "gc_freeze", "--budget", "25s", "--out", "results/tune"]
    return subprocess.run(
        [sys.executable, "-m", "fulltilt", "tune", *options, "--", *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.mark.slow
@pytest.mark.parametrize("wanted", MEANS, ids=lambda wanted: wanted or "strongest")
def test_a_tune_leaves_everything_as_it_was(belongings, wanted, tmp_path):
    folder, _, environment = belongings
    need_means(wanted, folder, environment)
    environment[PROTECTION_VARIABLE] = wanted
    more = ["--python-only"] if wanted == "redirect" else []
    (folder / "run.sh").write_text(f"exec {shlex.join([sys.executable, str(SCRIPT), '1000000', *more])} > out.log\n")
    (folder / "out.log").write_text("of an earlier run\n")
    command = [sys.executable, str(SCRIPT), "1000000", *more] if wanted == "redirect" else ["bash", "run.sh"]
    results = folder / "results"
    before = looks(tmp_path / "me", apart_from=results)

    done = tune(command, folder, environment)

    assert done.returncode == 0, done.stderr
    assert looks(tmp_path / "me", apart_from=results) == before
    assert os.listdir(environment["TMPDIR"]) == []
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    result = json.loads((results / "tune" / "result.json").read_text())
    assert result["protection"]["means"] == MEANS[wanted]
    assert "Files " in done.stdout
    assert "Your files" in (results / "tune" / "report.md").read_text()


@pytest.mark.slow
def test_production_writes_for_real(belongings):
    folder, home, environment = belongings
    command = [sys.executable, "-m", "fulltilt", "run", "--", sys.executable, str(SCRIPT), "5"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "trained to the end\n"), done.stderr
    assert not (folder / "checkpoints" / "oldest.pt").exists()
    assert (folder / "metrics.db").exists()
    assert (home / ".cache" / "models" / "downloaded").read_text() == "3"

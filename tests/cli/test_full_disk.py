"""A disk that really is full: a small file system in a mount namespace of the tuner's own."""

import json
import shutil
import subprocess
import sys

import pytest

IN_NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]


def can_mount():
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*IN_NAMESPACE, "mount -t tmpfs none /mnt"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not can_mount(), reason="may not mount")

SCRIPT = """
import sys, torch
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100000):
    optimizer.zero_grad()
    model(torch.ones(2, 64)).square().mean().backward()
    optimizer.step()
    if step % 4 == 3:
        with open(f"checkpoint-{step}.pt", "wb") as file:
            file.write(b"x" * (1 << 20))
"""


def tune_on_small_disk(tmp_path, folder, size, before=""):
    """`fulltilt tune` with a file system of this size mounted on `folder`; what the user sees."""
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / "script.py").write_text(SCRIPT)
    tune = f"{sys.executable} -m fulltilt tune --quiet --only gc_freeze --budget 60s --out out -- {sys.executable}"
    shell = (
        f"mount -t tmpfs -o size={size} none {folder} && {before} {tune} script.py; echo $? > status; cp -r out kept"
    )
    done = subprocess.run([*IN_NAMESPACE, shell], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("fulltilt: ")
    return int((tmp_path / "status").read_text()), done.stderr


def test_full_for_what_the_script_writes(tmp_path):
    status, said = tune_on_small_disk(tmp_path, "small", "8m", before="TMPDIR=$PWD/small")
    assert status == 1
    assert "No space left on device" in said
    assert f"{tmp_path}/small/fulltilt-" in said
    assert "point TMPDIR at another disk" in said


def test_full_for_the_tuners_own_folder(tmp_path):
    status, said = tune_on_small_disk(tmp_path, "out", "64k")
    assert status == 1
    assert "out" in said
    assert "--out" in said
    lines = (tmp_path / "kept" / "journal.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["kind"] == "start"


def test_full_from_the_start(tmp_path):
    status, said = tune_on_small_disk(
        tmp_path, "out", "16k", before="head -c 100000 /dev/zero > out/filler 2> /dev/null;"
    )
    assert status == 1
    assert "out" in said
    assert "cannot be written" in said
    assert "--out" in said

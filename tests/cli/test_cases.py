"""Small scripts that break naive tools, where a folder of them is at hand: `FULLTILT_CASES`, or `../shared/cases`.

EXPECTED.txt holds what each prints by itself, and its exit status: `fulltilt run` must not change a byte of it.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(os.environ.get("FULLTILT_CASES", Path(__file__).resolve().parents[3] / "shared" / "cases"))


def expectations():
    path = CASES / "EXPECTED.txt"
    if not path.exists():
        return []
    parts = re.split(r"^== (.*)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [(name, *re.fullmatch(r"(.*)exit (\d+)\n", text, flags=re.DOTALL).groups()) for name, text in pairs]


@pytest.mark.slow
@pytest.mark.skipif(not expectations(), reason="no folder of cases")
@pytest.mark.parametrize(("name", "output", "status"), expectations(), ids=lambda value: str(value)[:20])
def test_a_case_runs_as_it_does_by_itself(name, output, status, tmp_path):
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "fulltilt", "run", "--", sys.executable, name]
    done = subprocess.run(command, cwd=CASES, env=environment, capture_output=True, check=False)
    assert done.stdout.decode() == output
    assert done.returncode == int(status)
    assert b"fulltilt" not in done.stderr

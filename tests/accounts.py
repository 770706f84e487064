"""Runs a program as another account: as root in a container, or as a plain user. Both need root to begin with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[1] / "src"
PLAIN_USER, PLAIN_GROUP, TEAM = 4242, 4242, 4343
"""Ids that nobody has, so that a wrong mapping shows."""

ACCOUNTS = ("as it is", "root in a container", "plain user")
_OF_A_CONTAINER = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
"""The capabilities that Docker leaves: https://docs.docker.com/engine/security/ (Linux kernel capabilities)."""

_BECOME = {
    "as it is": "",
    # prctl(PR_CAPBSET_DROP): what is executed then has these no longer, root or not (capabilities(7))
    "root in a container": "import ctypes\nfor n in set(range(64)) - set(OF_A_CONTAINER):\n"
    "    ctypes.CDLL(None).prctl(24, n, 0, 0, 0)".replace("OF_A_CONTAINER", str(_OF_A_CONTAINER)),
    "plain user": f"os.setgroups([{TEAM}]); os.setgid({PLAIN_GROUP}); os.setuid({PLAIN_USER})",
}


def run_as(account: str, program: str, *, cwd: Path, **environment: str) -> str:
    """What a Python program prints that an account runs; the test is skipped where that account cannot be had."""
    if account != "as it is" and os.geteuid() != 0:
        pytest.skip("only root can become another account")
    interpreter = _interpreter_for(account)
    env = {**os.environ, "PYTHONPATH": str(SOURCES), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = _as(account, [interpreter, "-c", program], cwd=cwd, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def give_to(account: str, *paths: Path) -> None:
    """Make the account the owner of folders."""
    for path in paths if account == "plain user" and os.geteuid() == 0 else ():
        os.chown(path, PLAIN_USER, PLAIN_GROUP)


def _interpreter_for(account: str) -> str:
    """One that the account may execute, and that can import the sources."""
    test = "import sys; assert sys.version_info >= (3, 11); import fulltilt.trials.sandbox.protection"
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    for candidate in (sys.executable, "/usr/bin/python3"):
        if _as(account, [candidate, "-c", test], cwd=Path("/"), env=env).returncode == 0:
            return candidate
    pytest.skip("no Python that a plain user may execute")


def _as(account: str, command: list[str], *, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    become = f"import os, sys\n{_BECOME[account]}\nos.execve(sys.argv[1], sys.argv[1:], os.environ)"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", become, *command],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

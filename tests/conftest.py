"""Fixtures that start real trials of small scripts."""

import sys
from pathlib import Path

import pytest

from fulltilt.records.request import EvidenceRequest
from fulltilt.records.words import Role
from fulltilt.trials.contract import TrialPlan
from fulltilt.trials.subprocess_executor import SubprocessExecutor

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture
def scripts():
    return SCRIPTS


@pytest.fixture
def start_trial(tmp_path):
    """start_trial(argv, techniques=(), ...) -> (executor, live trial); everything is ended after the test."""
    executors = []

    def start(argv, *, techniques=(), evidence_steps=3, profile_steps=0, hang_seconds=60.0, name="t1", **request):
        executor = SubprocessExecutor(argv, directory=tmp_path / "trials", cwd=tmp_path, hang_seconds=hang_seconds)
        executors.append(executor)
        plan = TrialPlan(
            trial=name,
            role=Role.CANDIDATE,
            techniques=tuple(techniques),
            evidence=EvidenceRequest(num_steps=evidence_steps, **request),
            profile_steps=profile_steps,
        )
        return executor, executor.start(plan)

    yield start
    for executor in executors:
        executor.close()


@pytest.fixture
def python():
    return sys.executable

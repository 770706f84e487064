"""The environment that a user's command runs in under fulltilt."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fulltilt.records.request import REQUEST_VARIABLE, TRIAL_VARIABLE

STARTUP_FOLDER = Path(__file__).resolve().parent.parent / "tap" / "startup"

_OFFLINE = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "MLFLOW_TRACKING_URI": "file:{scratch}/mlruns",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "COMET_MODE": "offline",
}
"""Experiment trackers must not show trials beside the user's real runs."""


def worker_environment(environment: Mapping[str, str], request_path: Path) -> dict[str, str]:
    """`environment` with the start-up folder first on PYTHONPATH and the request named."""
    python_path = [str(STARTUP_FOLDER), *filter(None, [environment.get("PYTHONPATH")])]
    return {
        **environment,
        "PYTHONPATH": os.pathsep.join(python_path),
        REQUEST_VARIABLE: str(request_path),
    }


def trial_environment(environment: Mapping[str, str], request_path: Path, scratch: Path) -> dict[str, str]:
    """What a trial sees: trackers offline, temporary files in its scratch, strings hashed alike in every trial."""
    return {
        "PYTHONHASHSEED": "0",
        "TORCHINDUCTOR_CACHE_DIR": str(scratch.parent / "inductor"),
        **worker_environment(environment, request_path),
        TRIAL_VARIABLE: "1",
        "TMPDIR": str(scratch / "tmp"),
        "WANDB_DIR": str(scratch),
        **{name: value.format(scratch=scratch) for name, value in _OFFLINE.items()},
    }

"""What trials share with the rest of the machine though it lies among files: sockets and pipes of services.

A socket or pipe seen through an overlay is another one, which nobody listens on.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

_MOST_SOCKETS = 300
_MPS_VARIABLE, _MPS_FOLDER = "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"
"""Where processes meet NVIDIA's Multi-Process Service: https://docs.nvidia.com/deploy/mps/ (environment variables)."""


def shared_things(environment: Mapping[str, str]) -> list[str]:
    """Paths that must be the real ones in a trial too."""
    mps = environment.get(_MPS_VARIABLE, _MPS_FOLDER)
    return [*_bound_sockets(), *([mps] if os.path.isdir(mps) else [])]


def _bound_sockets() -> list[str]:
    """Sockets with a path that somebody has bound (unix(7), /proc/net/unix)."""
    try:
        text = Path("/proc/net/unix").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    paths = {fields[7] for fields in (line.split(None, 7) for line in text.splitlines()) if len(fields) == 8}
    return sorted(path for path in paths if path.startswith(os.sep) and _is_socket(path))[:_MOST_SOCKETS]


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False

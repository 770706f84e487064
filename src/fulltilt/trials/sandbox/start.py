"""Starts a command inside of a layout, as `subprocess.Popen` would start it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fulltilt.trials.sandbox.layout import Layout

_LAUNCHER = Path(__file__).with_name("launcher.py")
_PATIENCE_SECONDS = 60.0
"""For mounting, on a slow network file system."""


def write_layout(
    layout: Layout,
    folder: Path,
    *,
    cwd: str,
    user_namespace: bool,
    options: str,
    kept: Mapping[str, Sequence[str]],
) -> Path:
    """What the launcher reads; each overlay gets a layer in `folder`, which is to be a new one for each start.

    Args:
        kept: overlaid folder -> layers of earlier trials to be seen in it, newest first.
    """
    folder.mkdir()
    plan = {
        "overlays": {path: str(layer_of(layout, path, folder)) for path in layout.all_overlays},
        "below": dict(kept),
        "binds": layout.binds,
        "cwd": cwd,
        "user_namespace": user_namespace,
        "options": options,
    }
    path = folder / "layout.json"
    path.write_text(json.dumps(plan), encoding="utf-8")
    return path


def layer_of(layout: Layout, path: str, folder: Path) -> Path:
    """Where the layer of the overlay on `path` lies: in its `upper` is what was written there."""
    return folder / str(layout.all_overlays.index(path))


def start_inside(
    layout_path: Path, command: Sequence[str], *, cwd: str | os.PathLike[str], env: Mapping[str, str], **more: Any
) -> subprocess.Popen[bytes]:
    """The command, running in a namespace of its own.

    Raises:
        OSError: the command cannot be started, as from `Popen`; or the namespace cannot be made, and it says at what.
    """
    reading, writing = os.pipe()
    process = None
    try:
        launcher = [sys.executable, "-I", "-S", str(_LAUNCHER), str(writing), str(layout_path), "--"]
        process = subprocess.Popen([*launcher, *command], cwd=cwd, env=env, pass_fds=(writing,), **more)
        os.close(writing)
        writing = -1
        complaint = _read_to_end(reading)
        if complaint != b"":
            raise _as_error(complaint)
        return process
    except BaseException:  # Ctrl-C too: nobody else knows of the process yet
        if process is not None:
            process.send_signal(signal.SIGKILL)
            with process:  # waits, and closes its pipes
                pass
        raise
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)


def _read_to_end(descriptor: int) -> bytes | None:
    """What is written until the other end is closed; None when that takes too long."""
    said = b""
    while select.select([descriptor], [], [], _PATIENCE_SECONDS)[0]:
        data = os.read(descriptor, 65536)
        if not data:
            return said
        said += data
    return None


def _as_error(complaint: bytes | None) -> OSError:
    if complaint is None:
        return TimeoutError(None, f"no overlay could be mounted within {_PATIENCE_SECONDS:.0f} s")
    told = json.loads(complaint)
    number, what = int(told["errno"]), str(told["what"])
    return OSError(number, f"{what}: {os.strerror(number)}" if what else os.strerror(number))

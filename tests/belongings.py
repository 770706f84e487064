"""A user's folder and home for the script `writes_everywhere.py`, and what they look like."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

Looks = dict[str, tuple[object, ...]]


def make_belongings(folder: Path, home: Path) -> None:
    """Old checkpoints, logs and runs, which a trial could overwrite."""
    for path in (folder / "checkpoints", folder / "runs" / "old", folder / "runs" / "gone", home / ".cache" / "models"):
        path.mkdir(parents=True)
    contents = {
        "checkpoints/last.pt": "precious",
        "checkpoints/oldest.pt": "precious",
        "checkpoints/model.safetensors": "precious",
        "runs/old/config.json": "{}",
        "runs/gone/config.json": "{}",
        "train.log": "old\n",
        "history.csv": "step,loss\n",
        "weights.npy": "precious",
        "tokens.bin": "0123456789",
        "script.cfg": "x = 1\n",
    }
    for name, content in contents.items():
        (folder / name).write_text(content)
    (folder / "latest").symlink_to("checkpoints/oldest.pt")
    (home / ".cache" / "models" / "kept").write_text("weights")


def looks(*folders: Path, apart_from: Path | None = None) -> Looks:
    """Path -> mode, time of change, owner, content (or target) of all in these folders, themselves included."""
    found: Looks = {}
    for top in folders:
        for folder, _, names in os.walk(top):
            for path in [Path(folder), *(Path(folder, name) for name in names)]:
                if apart_from is None or not path.is_relative_to(apart_from):
                    found[str(path)] = _looks_of(path)
    return found


def _looks_of(path: Path) -> tuple[object, ...]:
    status = path.lstat()
    if path.is_symlink():
        return (status.st_mode, status.st_mtime_ns, os.readlink(path))
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return (status.st_mode, status.st_mtime_ns, status.st_uid, status.st_gid, digest)

"""Removes what trials have left, whatever its modes: a trial may have written folders that nobody may enter."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path


def remove_tree(path: str | Path) -> None:
    """Remove a folder and all that is in it, as far as the account may; links are removed, not followed."""
    for folder, names, _ in os.walk(path):
        for name in names:
            _open_up(os.path.join(folder, name))
    shutil.rmtree(path, ignore_errors=True)


def _open_up(folder: str) -> None:
    """An overlay's work folder has no permissions at all."""
    with contextlib.suppress(OSError):
        mode = os.lstat(folder).st_mode
        if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(folder, stat.S_IRWXU)

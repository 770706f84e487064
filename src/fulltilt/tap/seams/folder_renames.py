"""Seam on renaming folders, in trials under an overlay: done by copying where the overlay cannot.

An overlay in a user namespace cannot rename a folder that was there before (EXDEV, as between two file systems:
https://docs.kernel.org/filesystems/overlayfs.html, "redirect_dir"). Shells' `mv` copies then, `os.rename` does not, and
a script that moves its old runs out of the way would fail in trials only. Standard library only, as it is installed
before anything of the user's runs.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

from fulltilt.tap.seams.attribute import Replacement


def install() -> list[Replacement]:
    """Replace `os.rename` and `os.replace`."""
    return [Replacement(os, name, _renaming_folders(getattr(os, name))) for name in ("rename", "replace")]


def _renaming_folders(original: Callable[..., None]) -> Callable[..., None]:
    def rename(src: Any, dst: Any, *args: Any, **kwargs: Any) -> None:
        try:
            return original(src, dst, *args, **kwargs)
        except OSError as error:
            if error.errno != errno.EXDEV or args or any(kwargs.values()) or not _are_on_one_overlay(src, dst):
                raise
        return _move(os.fspath(src), os.fspath(dst), original)

    if original in os.supports_dir_fd:
        os.supports_dir_fd.add(rename)
    return rename


def _are_on_one_overlay(src: Any, dst: Any) -> bool:
    """Is it a folder that would be renamed, had it not been there before?"""
    parent = os.path.dirname(os.path.abspath(dst))
    return os.path.isdir(src) and not os.path.islink(src) and os.stat(src).st_dev == os.stat(parent).st_dev


def _move(src: Any, dst: Any, rename: Callable[..., None]) -> None:
    """By a copy beside `dst`, so that it appears there whole, and not at all where a rename would be refused."""
    source, target = os.fsdecode(src), os.path.abspath(os.fsdecode(dst))
    with tempfile.TemporaryDirectory(dir=os.path.dirname(target), prefix=".fulltilt-") as folder:
        copy = os.path.join(folder, "copy")
        shutil.copytree(source, copy, symlinks=True)
        rename(copy, target)
    shutil.rmtree(source)

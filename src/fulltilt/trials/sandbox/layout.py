"""Decides which folders of this machine get an overlay, and which cannot have one.

Found are the topmost folders that the account can write to, on every mounted file system, and besides them those that
the command names. Without the right to mount (in a user namespace) the kernel allows less:

- an overlay copies a folder up before it writes into it, and can only do so for the user's own user and group (others
  are not known in the namespace: EOVERFLOW). Folders of a shared group are therefore left to redirection.
- folders with other file systems mounted below cannot be the base of an overlay (the mounts are locked, for what they
  hide): their subfolders are taken instead.
"""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fulltilt.trials.sandbox.mounts import Mount, is_within

_LEFT_ALONE = ("/proc", "/sys", "/dev", "/run", "/boot", "/snap", "/lost+found")
"""Devices, shared memory, sockets of services, and what no training writes to."""
_NOT_SEARCHED = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/nix", "/var/lib", "/var/cache", "/var/log")
"""Large, and the system's: they get an overlay when the account can write to them as such."""
_DEEPEST = 3
_MOST_FOLDERS = 2000
_MOST_CHILDREN = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """What the file system is to look like for a trial."""

    overlays: tuple[str, ...]
    """Folders whose changes land in a layer of the trial's own."""
    redirected: tuple[str, ...]
    """Folders that can be written to, and can have no overlay."""
    binds: tuple[str, ...]
    """What must stay real inside of overlays: folders, sockets, other mounts."""
    caches: tuple[str, ...] = ()
    """Folders, there or not, with an overlay of their own: what a trial leaves there, the next ones find."""

    @property
    def all_overlays(self) -> tuple[str, ...]:
        return (*self.overlays, *self.caches)

    def is_overlaid(self, path: str) -> bool:
        """Does what is written to the folder `path` land in a layer?"""
        marks = [folder for folder in self._marks if is_within(path, folder)]
        return bool(marks) and max(marks, key=len) in self.overlays

    def with_caches(self, folders: Iterable[str]) -> Layout:
        """This layout, and an overlay for each of `folders` that lies in one."""
        apart: list[str] = []
        for folder in sorted(map(os.path.realpath, folders)):
            if self.is_overlaid(folder) and folder not in self.overlays and not _holds_any(folder, self._marks):
                apart += [] if any(is_within(folder, other) for other in apart) else [folder]
        return dataclasses.replace(self, caches=tuple(apart))

    @property
    def _marks(self) -> tuple[str, ...]:
        return (*self.overlays, *self.redirected, *self.binds)


def lay_out(
    mounts: Sequence[Mount], *, named: Iterable[str], real: Iterable[str], working: str, may_mount: bool
) -> Layout:
    """The layout for this account.

    Args:
        named: folders that the command is known to use: working folder, home, the script's, those among its arguments.
        real: folders and sockets that must stay real, overlay or not.
        working: the working folder; its subfolders are looked at one by one.
        may_mount: the account needs no user namespace.
    """
    survey = _Survey(mounts, may_mount)
    for mount in mounts:
        if mount.holds_files:
            survey.visit(mount.path)
    for folder in [*named, *_folders_in(working)]:
        survey.see_to(os.path.realpath(folder))
    return survey.layout([path for path in map(os.path.realpath, real) if os.path.lexists(path)])


class _Survey:
    def __init__(self, mounts: Sequence[Mount], may_mount: bool) -> None:
        self._may_mount, self._mounts = may_mount, mounts
        self._mount_points = {mount.path for mount in mounts}
        self._overlays: set[str] = set()
        self._redirected: set[str] = set()
        self._num_visited = 0

    def visit(self, folder: str, depth: int = 0) -> None:
        """Give this folder an overlay, or those of its subfolders that can be written to."""
        if self._is_left_alone(folder) or self._is_overlaid(folder) or not os.path.isdir(folder):
            return
        self._num_visited += 1
        is_writable = os.access(folder, os.W_OK | os.X_OK) and folder != os.sep
        if is_writable and self._can_have_overlay(folder):
            self._overlays.add(folder)
            return
        if is_writable:
            self._redirected.add(folder)
        if depth < _DEEPEST and (is_writable or folder not in _NOT_SEARCHED):
            for child in _folders_in(folder):
                if self._num_visited < _MOST_FOLDERS and child not in self._mount_points:
                    self.visit(child, depth + 1)

    def see_to(self, folder: str) -> None:
        """A folder that the command uses: an overlay further up does not do when it cannot copy this one up."""
        if not os.path.isdir(folder) or self._is_left_alone(folder):
            return
        if folder == os.sep:
            self._redirected.add(folder)
        elif not self._is_overlaid(folder):
            self.visit(folder, _DEEPEST)
        elif not all(map(self._is_own, self._from_overlay_to(folder))) and os.access(folder, os.W_OK | os.X_OK):
            (self._overlays if self._can_have_overlay(folder) else self._redirected).add(folder)

    def layout(self, real: Sequence[str]) -> Layout:
        covered = [path for path in real if self._is_covered(path)]
        mounted = [path for path in self._mount_points - self._overlays if self._is_covered(path)]
        left = [folder for folder in self._redirected if self._is_covered(folder)]
        return Layout(
            overlays=tuple(sorted(self._overlays)),
            redirected=tuple(sorted(self._redirected)),
            binds=tuple(sorted({*covered, *mounted, *left})),
        )

    def _is_left_alone(self, folder: str) -> bool:
        return any(is_within(folder, skipped) for skipped in _LEFT_ALONE)

    def _can_have_overlay(self, folder: str) -> bool:
        if self._may_mount:
            return True
        has_mounts = any(point != folder and is_within(point, folder) for point in self._mount_points)
        return not has_mounts and (self._is_own(folder) or _is_everybodys(folder))

    def _is_own(self, folder: str) -> bool:
        if self._may_mount:
            return True
        looks = os.stat(folder)
        return (looks.st_uid, looks.st_gid) == (os.geteuid(), os.getegid())

    def _is_covered(self, path: str) -> bool:
        """Would an overlay hide it?"""
        return any(path != folder and is_within(path, folder) for folder in self._overlays)

    def _is_overlaid(self, folder: str) -> bool:
        """Is there an overlay that it lies in, on the same mount?"""
        overlay, mount = (
            max((mark for mark in marks if is_within(folder, mark)), key=len, default="")
            for marks in (self._overlays, self._mount_points)
        )
        return bool(overlay) and len(overlay) >= len(mount)

    def _from_overlay_to(self, folder: str) -> Iterator[str]:
        while folder not in self._overlays:
            yield folder
            folder = os.path.dirname(folder)


def named_folders(command: Sequence[str], working: str, environment: Iterable[str]) -> list[str]:
    """Folders that a command will probably write to: where it runs, where it lies, and what it is told."""
    told = [part for word in command for part in word.split("=")]
    paths = [Path(working, word) for word in told if word and not word.startswith("-")]
    existing = [path for path in map(_existing_folder, paths) if path not in (None, os.sep)]
    variables = [value for value in environment if value.startswith(os.sep) and os.path.isdir(value)]
    found = [working, *existing, *variables]
    folders = [folder for path in found for folder in (path, _repository(path)) if folder]
    return list(dict.fromkeys(map(os.path.realpath, folders)))


def _holds_any(folder: str, paths: Iterable[str]) -> bool:
    return any(is_within(path, folder) for path in paths)


def _existing_folder(path: Path) -> str | None:
    """The path, if it is a folder; else the one it lies in, or would; None for words that are no paths."""
    try:
        return next((str(folder) for folder in (path, *path.parents) if folder.is_dir()), None)
    except (OSError, ValueError):  # too long for a path, or with a NUL
        return None


def _repository(folder: str) -> str | None:
    path = Path(folder)
    return next((str(parent) for parent in (path, *path.parents) if (parent / ".git").exists()), None)


def _folders_in(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))[:_MOST_CHILDREN]
    except OSError:
        return []


def _is_everybodys(folder: str) -> bool:
    """A folder such as /tmp: in it everybody has files of his own."""
    mode = os.stat(folder).st_mode
    return bool(mode & stat.S_ISVTX) and bool(mode & stat.S_IWOTH)

"""What is mounted here, from /proc/self/mountinfo (proc_pid_mountinfo(5))."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_IN_MEMORY = ("tmpfs", "ramfs")
# fmt: off
_PSEUDO = (
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs",
    "fuse.gvfsd-fuse", "fuse.lxcfs", "fuse.portal", "fusectl", "hugetlbfs", "mqueue", "nfsd", "nsfs", "proc", "pstore",
    "ramfs", "rpc_pipefs", "securityfs", "selinuxfs", "sysfs", "tracefs",
)
# fmt: on
"""Not files, but windows on the kernel or on a service: an overlay would make them dead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    """One mounted file system, or part of one."""

    path: str
    kind: str
    read_only: bool

    @property
    def holds_files(self) -> bool:
        """Could the user have files there that can be written?"""
        return self.kind not in _PSEUDO and not self.read_only


def read_mounts(path: str = "/proc/self/mountinfo") -> tuple[Mount, ...]:
    """All mounts that can be seen, outer ones first.

    Raises:
        OSError: there is no such file (not Linux, no /proc).
    """
    lines = Path(path).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    mounts = {mount.path: mount for mount in map(_parse, lines)}  # of several on one path the last is seen
    return tuple(mounts[path] for path in sorted(mounts))


def mount_of(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """The mount that the folder `path` lies on."""
    holding = [mount for mount in mounts if is_within(path, mount.path)]
    return max(holding, key=lambda mount: len(mount.path), default=None)


def is_in_memory(path: str, mounts: Sequence[Mount]) -> bool:
    """Would files there fill the memory?"""
    mount = mount_of(path, mounts)
    return mount is not None and mount.kind in _IN_MEMORY


def is_within(path: str, folder: str) -> bool:
    """Is `path` the folder, or in it? Both absolute and normal."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _parse(line: str) -> Mount:
    """ "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue"."""
    before, _, after = line.partition(" - ")
    fields, kind, options = before.split(" "), *_first_and_last(after)
    return Mount(
        path=_unescape(fields[4]),
        kind=kind,
        read_only="ro" in fields[5].split(",") or "ro" in options.split(","),
    )


def _first_and_last(text: str) -> tuple[str, str]:
    words = text.split(" ")
    return words[0], words[-1]


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)

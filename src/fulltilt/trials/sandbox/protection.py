"""Chooses the strongest means that this account has to keep trials off the user's files, and starts commands under it.

1. an overlay in a mount namespace (the account may mount: root, CAP_SYS_ADMIN)
2. the same inside of a user namespace, which plain users may make on most kernels
3. writes redirected in Python, by the seam on files

Each is tried out before it is trusted: a process makes, replaces and moves files in the user's folders, and nothing of
that may be seen outside.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fulltilt.records.request import OVERLAID_VARIABLE
from fulltilt.records.result import ProtectionRecord
from fulltilt.records.words import Protection as Means
from fulltilt.trials.removal import remove_tree
from fulltilt.trials.sandbox.caches import KeptCaches, cache_folders
from fulltilt.trials.sandbox.layout import Layout, lay_out, named_folders
from fulltilt.trials.sandbox.mounts import is_in_memory, is_within, mount_of, read_mounts
from fulltilt.trials.sandbox.shared_things import shared_things
from fulltilt.trials.sandbox.start import start_inside, write_layout

PROTECTION_VARIABLE = "FULLTILT_PROTECTION"
"""Set to "redirect" to do without overlays, or to "user-namespace" to do without the right to mount."""

_CHECK = Path(__file__).with_name("check.py")
_CAP_SYS_ADMIN = 21
_LONGEST_BASE = 75
"""Characters of a path that scratch may lie in: the path of a socket has 107 bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlay:
    """How the overlay is made."""

    layout: Layout
    user_namespace: bool
    options: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Protection:
    """The means chosen for a tune."""

    scratch: Path
    """A new folder, for all trials of the tune."""
    overlay: Overlay | None
    caches: KeptCaches
    reason: str = ""
    """Why there is no overlay, when there is none."""

    @property
    def record(self) -> ProtectionRecord:
        if self.overlay is None:
            return ProtectionRecord(means=Means.REDIRECTED, reason=self.reason)
        return ProtectionRecord(means=Means.OVERLAY, redirected=self.overlay.layout.redirected)

    def variables(self) -> dict[str, str]:
        """What the worker is told through the environment: what to redirect, and what needs no redirection."""
        if self.overlay is None:
            return {}
        layout = self.overlay.layout
        return {OVERLAID_VARIABLE: json.dumps({"overlaid": layout.overlays, "redirected": layout.redirected})}

    def start(
        self, command: Sequence[str], *, scratch: Path, cwd: Path, env: Mapping[str, str], **more: Any
    ) -> subprocess.Popen[bytes]:
        """Start a trial's command; `more` goes to `Popen`.

        Raises:
            OSError: it cannot be started, or not be protected.
        """
        if self.overlay is None:
            return subprocess.Popen(command, cwd=cwd, env=env, **more)
        layout_path = write_layout(
            self.overlay.layout,
            scratch / "layers",
            cwd=str(cwd),
            user_namespace=self.overlay.user_namespace,
            options=self.overlay.options,
            kept=self.caches.layers,
        )
        return start_inside(layout_path, command, cwd=cwd, env=env, **more)

    def keep_caches(self, scratch: Path) -> None:
        """Later trials shall find what this one, which has trained and ended, has put into caches."""
        if self.overlay is not None:
            self.caches.keep(self.overlay.layout, scratch / "layers")


def choose_protection(
    command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], results: Path
) -> Protection:
    """The strongest means that works here, tried out.

    Args:
        results: the folder for results: the last place for scratch when no other can hold layers.
    """
    wanted = environment.get(PROTECTION_VARIABLE, "")
    reasons = [f"{PROTECTION_VARIABLE}={wanted}"] if wanted == "redirect" else []
    for base in () if reasons else _bases(results):
        scratch = Path(tempfile.mkdtemp(prefix="fulltilt-", dir=base))
        try:
            _refuse_overlay_on_overlay(base)
            may_mount = _may_mount() and wanted != "user-namespace"
            overlay = _try(command, scratch, cwd, environment, may_mount=may_mount)
            return _protection(scratch, overlay)
        except OSError as error:
            reasons.append(explained(error))
            remove_tree(scratch)
    scratch = Path(tempfile.mkdtemp(prefix="fulltilt-"))
    return _protection(scratch, reason=reasons[0] if reasons else "no folder can hold the layers")


def _protection(scratch: Path, overlay: Overlay | None = None, *, reason: str = "") -> Protection:
    return Protection(scratch=scratch, overlay=overlay, caches=KeptCaches(scratch / "caches"), reason=reason)


def _bases(results: Path) -> list[str]:
    """Where scratch could lie: on disk first, as checkpoints would fill the memory."""
    candidates = dict.fromkeys([tempfile.gettempdir(), "/var/tmp", str(results)])
    usable = [base for base in candidates if os.access(base, os.W_OK | os.X_OK) and len(base) <= _LONGEST_BASE]
    try:
        mounts = read_mounts()
    except OSError:
        return usable
    return sorted(usable, key=lambda base: is_in_memory(os.path.realpath(base), mounts))


def _refuse_overlay_on_overlay(base: str) -> None:
    mount = mount_of(os.path.realpath(base), read_mounts())
    if mount is not None and mount.kind == "overlay":
        raise OSError(None, f"{base} lies on an overlay itself, as in a container; point TMPDIR at a mounted disk")


def _try(
    command: Sequence[str], scratch: Path, cwd: Path, environment: Mapping[str, str], *, may_mount: bool
) -> Overlay:
    """An overlay with its layers in `scratch` that has passed the check.

    Raises:
        OSError: it cannot be made, or does not do what it must.
    """
    if sys.platform != "linux":
        raise OSError(None, f"{sys.platform} has no overlay mounts")
    working = str(cwd.resolve())
    named = named_folders(command, working, environment.values())
    real = [str(scratch), *shared_things(environment)]
    layout = lay_out(read_mounts(), named=named, real=real, working=working, may_mount=may_mount)
    layout = layout.with_caches(cache_folders(environment, working))
    overlay = Overlay(layout=layout, user_namespace=not may_mount, options=_options(scratch, may_mount=may_mount))
    _check(overlay, scratch, cwd, [folder for folder in {*named, working} if layout.is_overlaid(folder)])
    return overlay


def _options(scratch: Path, *, may_mount: bool) -> str:
    """Where an overlay keeps its marks; in attributes that only root may write, folders can be renamed as well.

    https://docs.kernel.org/filesystems/overlayfs.html (userxattr, redirect_dir)
    """
    if may_mount and _holds_attribute(scratch, "trusted.fulltilt"):
        return "redirect_dir=on"
    if not _holds_attribute(scratch, "user.fulltilt"):
        raise OSError(None, f"{scratch.parent} cannot hold an overlay's layer (no extended attributes)")
    return "userxattr"


def _holds_attribute(folder: Path, name: str) -> bool:
    try:
        os.setxattr(folder, name, b"1")
        os.removexattr(folder, name)
    except OSError:
        return False
    return True


def _check(overlay: Overlay, scratch: Path, cwd: Path, folders: Sequence[str]) -> None:
    """Let a process write everywhere, and see whether anything of it can be seen.

    Raises:
        OSError: the namespace cannot be made, or does not hold.
    """
    name = f".fulltilt-check-{secrets.token_hex(8)}"
    folders = [f for f in folders if os.access(f, os.W_OK | os.X_OK) and not is_within(f, str(scratch))]
    inside = scratch / "check"
    inside.mkdir()
    process = _protection(scratch, overlay).start(
        [sys.executable, "-I", "-S", str(_CHECK), name, *folders, str(inside)],
        scratch=inside,
        cwd=cwd,
        env=os.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    complaint = process.communicate()[1].decode("utf-8", errors="replace").strip()
    seen = [folder for folder in folders if _remove_if_there(Path(folder, name))]
    is_scratch_real = (inside / name).is_dir()
    remove_tree(inside)
    if process.returncode or seen or not is_scratch_real:
        last = complaint.splitlines()[-1] if complaint else f"status {process.returncode}"
        raise OSError(None, f"the overlay lets writes to {seen[0]} through" if seen else f"the overlay fails: {last}")


def _remove_if_there(path: Path) -> bool:
    is_there = os.path.lexists(path)
    if is_there:
        remove_tree(path)
    return is_there


def _may_mount() -> bool:
    """Has this process CAP_SYS_ADMIN (capabilities(7))?"""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    effective = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> _CAP_SYS_ADMIN & 1)


def explained(error: OSError) -> str:
    """Why there is no overlay, with the setting of the system that forbids it where one is known."""
    said = error.strerror or str(error)
    settings = [setting for setting in _FORBIDDING if _reads(*setting)]
    return f"{said} ({', '.join(f'{name} = {value}' for name, value in settings)})" if settings else said


_FORBIDDING = (
    ("kernel.apparmor_restrict_unprivileged_userns", "1"),
    ("kernel.unprivileged_userns_clone", "0"),
    ("user.max_user_namespaces", "0"),
    ("user.max_mnt_namespaces", "0"),
)
"""Settings under which plain users get no user namespace: of Ubuntu, of Debian, and of every kernel."""


def _reads(name: str, value: str) -> bool:
    try:
        return Path("/proc/sys", *name.split(".")).read_text(encoding="ascii").strip() == value
    except OSError:
        return False

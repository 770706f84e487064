"""Becomes the user's command in a mount namespace of its own: `python -I -S launcher.py STATUS_FD LAYOUT -- COMMAND`.

A program of its own, of the standard library only, as namespaces must be entered by a process with one thread, between
fork and exec. It keeps its process id, session and open files: to everybody else it is the command.

    1. a mount namespace, inside a user namespace where the account may not mount (user_namespaces(7), which maps the
       user to itself only, so that `whoami` and the owner of files stay what they are)
    2. an overlay over each folder of LAYOUT: what is written there lands in the trial's own layer
    3. what must stay real (the trial's scratch, sockets that somebody else listens on) is bound back

STATUS_FD closes when the command has been started; before that, a line of JSON tells what could not be done.
"""

import contextlib
import ctypes
import errno
import json
import os
import signal
import stat
import sys
from typing import Any

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_BIND, MS_REC, MS_SLAVE = 4096, 16384, 1 << 19


def main(status: int, layout_path: str, command: list[str]) -> None:
    """Does not return."""
    os.set_inheritable(status, False)
    environment = _original_environment()
    what = "entering a mount namespace"
    try:
        with open(layout_path, encoding="utf-8", errors="surrogateescape") as file:
            layout = json.load(file)
        enter(layout)
        what = f"going to {layout['cwd']}"
        os.chdir(layout["cwd"])
        what = ""
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and that would be inherited
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(command[0], command, environment)
    except OSError as error:
        what = getattr(error, "what", what)
        os.write(status, json.dumps({"errno": error.errno, "what": what}).encode())
    os._exit(127)


def enter(layout: dict[str, Any]) -> None:
    """Set up the namespace that `layout` (see start.py) describes.

    Raises:
        OSError: with `what` was being done, when the kernel refuses.
    """
    layers = {path: _make_layer(folder, path) for path, folder in layout["overlays"].items()}
    _unshare(user=layout["user_namespace"])
    _mount("none", "/", None, MS_REC | MS_SLAVE, None)  # nothing of ours is seen outside
    bound = _opened(layout["binds"])
    overlays = {
        path: _overlay_options([*layout["below"].get(path, []), lower], upper, work, layout["options"])
        for path, (lower, upper, work) in layers.items()
    }
    for path in sorted([*overlays, *bound]):  # a folder before what is in it
        if path in overlays:
            with contextlib.suppress(PermissionError):  # a cache that is not there and cannot be made
                os.makedirs(path, exist_ok=True)
            if os.path.isdir(path):
                _mount("overlay", path, "overlay", 0, overlays[path])
        else:
            with contextlib.suppress(FileNotFoundError):  # sockets come and go
                _mount(_fd_path(bound[path]), path, None, MS_BIND | MS_REC, None)


def _opened(paths: list[str]) -> dict[str, int]:
    """The real things, before overlays hide them."""
    found = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            found[path] = os.open(path, os.O_PATH)
    return found


def _make_layer(folder: str, path: str) -> tuple[str, str, str]:
    """The lower, upper and work folder of an overlay on `path`, which need not be there yet.

    The upper one shows as the folder itself, so it gets its looks.
    """
    nothing, upper, work = (os.path.join(folder, name) for name in ("nothing", "upper", "work"))
    for made in (nothing, upper, work):
        os.makedirs(made)
    lower = path if os.path.isdir(path) else nothing
    looks = os.stat(lower)
    with contextlib.suppress(OSError):  # another's folder: only the very top of it will seem to be ours
        os.chown(upper, looks.st_uid, looks.st_gid)
    os.chmod(upper, stat.S_IMODE(looks.st_mode))
    os.utime(upper, ns=(looks.st_atime_ns, looks.st_mtime_ns))
    return lower, upper, work


def _overlay_options(lowers: list[str], upper: str, work: str, more: str) -> bytes:
    """Descriptors instead of paths: those may hold commas and colons, and may be hidden by an overlay by then.

    They must be opened in the namespace that mounts: a folder seen from another one cannot be mounted.
    """
    *below, upper, work = (_fd_path(os.open(path, os.O_PATH)) for path in (*lowers, upper, work))
    return f"lowerdir={':'.join(below)},upperdir={upper},workdir={work},{more}".encode()


def _fd_path(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _unshare(*, user: bool) -> None:
    ids = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS | (CLONE_NEWUSER if user else 0)):
        raise _error("making a user namespace" if user else "making a mount namespace")
    if user:
        _write("/proc/self/setgroups", "deny")  # what the groups may read stays readable
        for name, number in zip(("uid_map", "gid_map"), ids, strict=True):
            _write(f"/proc/self/{name}", f"{number} {number} 1")


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    except OSError as error:
        error.what = f"writing {path}"  # type: ignore[attr-defined]
        raise


def _mount(source: str, target: str, kind: str | None, flags: int, data: bytes | None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = os.fsencode(source), os.fsencode(target), kind.encode() if kind else None
    if libc.mount(*arguments, ctypes.c_ulong(flags), data):
        raise _error(f"mounting {'an overlay on' if kind else 'back' if flags & MS_BIND else 'privately'} {target}")


def _error(what: str) -> OSError:
    number = ctypes.get_errno() or errno.EIO
    error = OSError(number, os.strerror(number))
    error.what = what  # type: ignore[attr-defined]
    return error


def _original_environment() -> dict[bytes, bytes]:
    """As it was handed over: Python adds LC_CTYPE to its own where the locale is C (PEP 538)."""
    with open("/proc/self/environ", "rb") as file:
        pairs = [line.partition(b"=") for line in file.read().split(b"\0") if b"=" in line]
    return {name: value for name, _, value in pairs}


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[4:])

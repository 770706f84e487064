"""How often the kernel has killed for memory: on this machine, and in the control group that this process is in.

A process that is killed for memory looks like any that got SIGKILL. What tells is that a counter has risen meanwhile:
`oom_kill` of /proc/vmstat (https://docs.kernel.org/filesystems/proc.html), which in a container may be hidden, or of
the control group's own events (https://docs.kernel.org/admin-guide/cgroup-v2.html, memory.events).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def count_memory_kills(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """The sum of all counters that can be read; only a rise has a meaning."""
    return sum(_counter(path) for path in [proc / "vmstat", *_event_files(proc / "self" / "cgroup", cgroups)])


def _event_files(membership: Path, cgroups: Path) -> Iterator[Path]:
    """Of version 2 ("0::/path") and of version 1's memory controller ("4:memory:/path").

    In a container the path may be the host's, and its own group stands at the root of what is mounted.
    """
    for line in _read(membership).splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not controllers:
            yield from _first(cgroups, path, "memory.events")
        elif "memory" in controllers.split(","):
            yield from _first(cgroups / "memory", path, "memory.oom_control")


def _first(root: Path, path: str, name: str) -> Iterator[Path]:
    candidates = [root / path.lstrip("/") / name, root / name]
    yield from [candidate for candidate in candidates if candidate.is_file()][:1]


def _counter(path: Path) -> int:
    for line in _read(path).splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == "oom_kill" and words[1].isdigit():
            return int(words[1])
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""

"""Where a recipe was found best: what must be the same for it to be trusted again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from fulltilt.records.record import SiteRecord
from fulltilt.records.result import MachineRecord


def fingerprint_of(command: Sequence[str], machine: MachineRecord, site: SiteRecord | None) -> dict[str, str]:
    """Facts by name, each a string."""
    facts = {
        "command": shlex.join(command),
        "torch": machine.torch,
        "python": machine.python,
        "device": machine.device_name or machine.cpu,
        "threads": str(machine.num_threads),
    }
    if site is not None:
        facts["model"] = ", ".join(f"{m.class_name} ({m.num_parameters} parameters)" for m in site.modules)
    return facts

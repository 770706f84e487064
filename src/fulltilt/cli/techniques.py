"""`fulltilt techniques`."""

from __future__ import annotations

import typer

from fulltilt.cli.arguments import Json


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(techniques)


def techniques(json: Json = False) -> None:
    """List the techniques, and whether each can be used on this machine.

    Example: fulltilt techniques
    """
    import shutil
    import sys

    from fulltilt.hardware.machine import probe, this_machine, with_environment
    from fulltilt.report.techniques_table import TechniqueRow, print_techniques
    from fulltilt.techniques import all_specs

    pythons = dict.fromkeys(filter(None, (shutil.which("python"), sys.executable)))
    environment = next(filter(None, (probe([python]) for python in pythons)), None)
    machine = this_machine()
    if environment is not None:
        machine = with_environment(machine, environment)
    rows = []
    for spec in all_specs():
        reason = spec.unavailable(machine, None) if environment is not None else "python here has no torch"
        rows.append(
            TechniqueRow(
                name=spec.name,
                summary=spec.summary,
                numerics=spec.numerics,
                stage=spec.stage.name,
                available=reason is None,
                reason=reason or "",
            )
        )
    if json:
        from fulltilt.records.codec import to_json

        print(to_json(rows))
        return
    from rich.console import Console

    print_techniques(rows, Console(highlight=False))

"""`fulltilt report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fulltilt.cli.arguments import Json


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(report)


def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a tune.", show_default=False)],
    json: Json = False,
) -> None:
    """Show the result of a tune or of a long check again, and write its report anew.

    Example: fulltilt report .fulltilt/train-20260101-120000
    """
    from fulltilt import api
    from fulltilt.cli.tune import show
    from fulltilt.cli.verify import show_check

    checked = api.long_check_of(directory)
    if checked is not None and not (directory / "result.json").exists():
        show_check(checked, directory, as_json=json)
        return
    show(api.report(directory), directory, as_json=json)
    if not json:
        print(directory / "report.html")

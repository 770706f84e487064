"""`fulltilt demo`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fulltilt.cli.arguments import Budget


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(demo)


def demo(
    budget: Budget = "3m",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for results.")] = None,
) -> None:
    """Tune a small example that comes with fulltilt.

    A character-level transformer on a text of its own, in plain PyTorch: it knows nothing of fulltilt.

    Example: fulltilt demo
    """
    from fulltilt.cli.tune import tune

    script = Path(__file__).resolve().parent.parent / "examples" / "char_transformer.py"
    tune([sys.executable, str(script)], budget=budget, out=out)

"""`fulltilt run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fulltilt.cli.arguments import COMMAND_SETTINGS, Command


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(context_settings=COMMAND_SETTINGS)(run)


def run(
    command: Command,
    recipe: Annotated[
        Path | None, typer.Option("--recipe", "-r", help="The recipe to train under; without one nothing is applied.")
    ] = None,
) -> None:
    """Train under a recipe.

    The command runs exactly as it would by itself, exit status, output and files included, with the recipe's techniques
    applied inside. One line on standard error says what was applied, what had no effect, and why.

    Example: fulltilt run -r .fulltilt/train-20260101-120000/recipe.yaml -- python train.py --lr 3e-4
    """
    from fulltilt import api

    api.run(command, recipe=recipe, replace_process=True)

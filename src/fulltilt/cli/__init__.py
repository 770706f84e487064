"""The command line: one file a verb, each a thin layer over `fulltilt.api`."""

from fulltilt.cli.app import main

__all__ = ["main"]

"""Frozen garbage in the worker: one full collection, then everything that lives is set aside."""

from __future__ import annotations

import gc

from fulltilt.technique import Applied, NoEffect, Site
from fulltilt.techniques.gc_freeze.spec import GcFreezeOptions


def apply(site: Site, options: GcFreezeOptions) -> Applied | NoEffect:
    """Collect once, and keep the collector from walking what is left."""
    if not gc.isenabled():
        return NoEffect(reason="the script has switched the garbage collector off")
    before = gc.get_freeze_count()
    gc.collect()
    if len(gc.get_objects()) <= before:
        return NoEffect(reason="what lives is frozen already")
    gc.freeze()
    return Applied(detail=f"{gc.get_freeze_count() - before} objects set aside", engaged=_proof)


def _proof() -> str | None:
    """None where the script has unfrozen them."""
    count = gc.get_freeze_count()
    return f"{count} objects frozen" if count else None

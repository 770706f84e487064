"""Frozen garbage: what it is, where it fits. Readable without torch."""

from dataclasses import dataclass

from fulltilt.technique import MachineRecord, Numerics, PhaseRecord, SiteRecord, Spec, Stage

_LARGEST_FACTOR = 1.05
"""A full collection takes tens of milliseconds every some hundred steps: more than this is out of sight."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GcFreezeOptions:
    """Settings of `gc_freeze`: none, it is on or off."""


def candidates(machine: MachineRecord, site: SiteRecord, phases: PhaseRecord) -> tuple[GcFreezeOptions, ...]:
    """Always worth a try, at the end of the line."""
    return (GcFreezeOptions(),)


def bound(phases: PhaseRecord, site: SiteRecord) -> float:
    """Collections count as other host work, so that phase at no cost; a few per cent where it is not measured."""
    if phases.other is None:
        return _LARGEST_FACTOR
    rest = phases.step_seconds - phases.other
    return max(_LARGEST_FACTOR, phases.step_seconds / rest) if rest > 0 else float("inf")


SPEC = Spec(
    name="gc_freeze",
    summary="Python's garbage collector stops walking the objects made before the second step",
    options=GcFreezeOptions,
    stage=Stage.STEP,
    numerics=Numerics.EXACT,
    apply="fulltilt.techniques.gc_freeze.apply:apply",
    candidates=candidates,
    bound=bound,
)

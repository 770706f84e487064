"""Channels-last layout: what it is, where it fits. Readable without torch."""

from dataclasses import dataclass

from fulltilt.technique import MachineRecord, Numerics, PhaseRecord, SiteRecord, Spec, Stage, forward_backward_bound

_LAYERS = ("Conv2d", "ConvTranspose2d")


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelsLastOptions:
    """Settings of `channels_last`: none, it is on or off."""


def candidates(machine: MachineRecord, site: SiteRecord, phases: PhaseRecord) -> tuple[ChannelsLastOptions, ...]:
    """On, wherever it is available."""
    return (ChannelsLastOptions(),) if unavailable(machine, site) is None else ()


def unavailable(machine: MachineRecord, site: SiteRecord | None) -> str | None:
    """It is for 2-D convolutions."""
    if site is None or not site.modules:
        return None
    if not any(layer in module.layer_counts for module in site.modules for layer in _LAYERS):
        return "no 2-D convolutions"
    return None


SPEC = Spec(
    name="channels_last",
    summary="Weights and images of 2-D convolutions with their channels side by side in memory",
    options=ChannelsLastOptions,
    stage=Stage.MODEL,
    numerics=Numerics.ROUNDING,
    apply="fulltilt.techniques.channels_last.apply:apply",
    candidates=candidates,
    unavailable=unavailable,
    bound=forward_backward_bound,
)

"""The product's own techniques, judged like the changes of the gallery."""

from __future__ import annotations

import dataclasses

from faults.change import Change
from fulltilt.technique import Spec, Stage
from fulltilt.techniques import spec_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Technique(Change):
    """A technique at its defaults, in the place of a change."""

    @property
    def spec(self) -> Spec:
        return spec_of(self.name)


def technique(name: str, script: str, *arguments: str) -> Technique:
    known = spec_of(name)
    return Technique(
        name=name,
        summary=known.summary,
        script=script,
        arguments=arguments,
        apply=lambda site: None,
        stage=Stage(known.stage),
        changes_draws=known.changes_draws,
    )


TECHNIQUES = {
    change.name: change
    for change in (
        technique("compile", "transformer", "--dropout", "0.1"),
        technique("fused_optimizer", "transformer"),
        technique("precision", "images"),
        technique("channels_last", "images"),
        technique("gc_freeze", "stream"),
    )
}

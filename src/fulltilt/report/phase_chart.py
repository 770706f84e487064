"""Where the time of a step goes, as one bar."""

from __future__ import annotations

from markupsafe import Markup

from fulltilt.records.record import PhaseRecord
from fulltilt.report.facts import phase_shares
from fulltilt.report.svg import chart, element

_WIDTH, _HEIGHT = 1000.0, 40.0
_GAP = 2.0


def phase_chart(phases: PhaseRecord) -> Markup:
    """The measured phases side by side, what they leave of the step as an empty rest; empty when none was measured."""
    measured = [phase for phase in phase_shares(phases) if phase.seconds is not None and phase.seconds > 0]
    if not measured:
        return Markup("")
    total = max(phases.step_seconds, sum(phase.seconds or 0.0 for phase in measured))
    parts, x = [element("rect", x=0, y=0, width=_WIDTH, height=_HEIGHT, class_="track")], 0.0
    for phase in measured:
        width = _WIDTH * (phase.seconds or 0.0) / total
        parts.append(
            element("rect", x=x, y=0, width=max(1.0, width - _GAP), height=_HEIGHT, class_=f"phase-{phase.key}")
        )
        x += width
    label = "; ".join(f"{phase.label}: {phase.words}" for phase in phase_shares(phases))
    return chart(*parts, width=_WIDTH, height=_HEIGHT, label=label, class_="phases", stretch=True)

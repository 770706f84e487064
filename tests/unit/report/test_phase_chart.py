import dataclasses
import re

from fulltilt.records.record import PhaseRecord
from fulltilt.records.result import TuneResult
from fulltilt.report.phase_chart import phase_chart


def test_widths_follow_the_shares(result: TuneResult) -> None:
    assert result.phases is not None
    widths = dict(re.findall(r'width="([\d.]+)" height="40" class="phase-(\w+)"', str(phase_chart(result.phases))))
    by_phase = {phase: float(width) for width, phase in widths.items()}
    assert set(by_phase) == {"data_wait", "forward", "backward", "optimizer", "other"}
    assert by_phase["backward"] / by_phase["forward"] > 1.5


def test_a_phase_that_was_not_measured_has_no_bar(result: TuneResult) -> None:
    assert result.phases is not None
    chart = str(phase_chart(dataclasses.replace(result.phases, optimizer=None)))
    assert "phase-optimizer" not in chart
    assert "optimizer: not measured" in chart


def test_no_chart_without_any_phase() -> None:
    nothing = PhaseRecord(
        num_steps=0, step_seconds=0.0, data_wait=None, forward=None, backward=None, optimizer=None, other=None
    )
    assert phase_chart(nothing) == ""

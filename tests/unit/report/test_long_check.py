"""Reports of a long check: as text, Markdown and a page, with whatever a command is called and prints."""

import dataclasses
import io
import math
import re
import xml.dom.minidom
from pathlib import Path

import pytest
from rich.console import Console

from fulltilt.measure.bands import bands_of
from fulltilt.measure.long_check import judge_runs
from fulltilt.records.codec import from_json, to_json
from fulltilt.records.curve import CurveRecord
from fulltilt.records.long_run import Judgement, LongCheckResult, LongCheckRun, PrintedSeries, RunRecord
from fulltilt.records.request import TechniqueChoice
from fulltilt.records.result import MachineRecord
from fulltilt.records.words import Outcome
from fulltilt.report.curve_chart import curve_chart
from fulltilt.report.long_check_html import render_long_check_html
from fulltilt.report.long_check_markdown import render_long_check_markdown
from fulltilt.report.long_check_terminal import print_long_check

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
NASTY = "<script>alert(1)</script> | \x1b[31m`x`\n"


def run(seed, losses, *, under_recipe=False, label="val loss"):
    return RunRecord(
        key=f"{under_recipe} {seed}",
        techniques=(TechniqueChoice(name="compile"),) if under_recipe else (),
        seed=seed,
        nudge=0.0,
        num_steps_asked=len(losses),
        outcome=Outcome.FINISHED,
        curve=CurveRecord(num_steps=len(losses), losses={"AdamW#0": tuple(losses)}, evaluations={}),
        printed=(PrintedSeries(label=label, line=f"{label} #", values=(losses[-1],), resolution=0.001),),
    )


def result(*, factor=1.0, spoil=None, command=("python", "train.py"), **words):
    pairs = []
    for seed in range(3):
        losses = [2.0 - step / 60 + 0.001 * seed + 0.0003 * (step % 3) for step in range(60)]
        theirs = [loss * factor + 1e-5 * seed for loss in losses]
        if spoil is not None:
            theirs[30:] = [spoil] * 30
        pairs.append((run(seed, losses, **words), run(seed, theirs, under_recipe=True, **words)))
    verdict = judge_runs(pairs)
    return LongCheckResult(
        command=command,
        recipe=(TechniqueChoice(name="compile", options={"scope": "model"}),),
        num_steps_asked=60,
        num_runs_asked=3,
        judgement=verdict.judgement,
        summary=verdict.summary,
        series=verdict.series,
        runs=tuple(
            LongCheckRun(
                arm=arm,
                seed=record.seed,
                outcome=record.outcome,
                message="",
                num_steps=60,
                wall_seconds=1.5,
                final_loss=record.curve.losses["AdamW#0"][-1],
            )
            for pair in pairs
            for arm, record in zip("ab", pair, strict=True)
        ),
        bands=bands_of(pairs),
        machine=MachineRecord(hostname_hash="", system="Linux", cpu="x", num_cpus=2, memory_bytes=1 << 30),
        finished=True,
        notes=verdict.failures[1:],
        not_judged=verdict.not_judged,
    )


def shown(outcome):
    console = Console(file=io.StringIO(), width=80, highlight=False)
    print_long_check(outcome, console, "out")
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("outcome", "judgement", "word"),
    [
        (result(), Judgement.EQUIVALENT, "Equivalent"),
        (result(factor=1.3), Judgement.DIFFERENT, "Different"),
        (result(spoil=math.nan), Judgement.DIFFERENT, "Different"),
    ],
)
def test_every_report_says_what_came_out_and_the_record_survives(outcome, judgement, word):
    assert outcome.judgement is judgement
    page, markdown, text = render_long_check_html(outcome), render_long_check_markdown(outcome), shown(outcome)
    assert all(word in report for report in (page, markdown, text))
    assert outcome.summary.split(":")[0].split()[0] in page
    assert from_json(LongCheckResult, to_json(outcome)).judgement is judgement


def test_the_page_loads_nothing_and_its_charts_are_well_formed():
    page = render_long_check_html(result(factor=1.3))
    assert not re.search(r'(?:src|href)="(?!#)', page)
    charts = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    assert len(charts) > 5
    for svg in charts:
        xml.dom.minidom.parseString(svg)


def test_what_a_command_is_called_and_prints_is_shown_and_not_obeyed():
    outcome = result(command=("python", NASTY), label=NASTY + "loss")
    page, markdown, text = render_long_check_html(outcome), render_long_check_markdown(outcome), shown(outcome)
    assert "<script>alert" not in page
    assert "<script>alert" not in markdown.replace("`", "").split("\n\n", 2)[2]
    assert "\x1b" not in page + markdown + text


def test_a_curve_that_ends_in_nan_is_drawn_as_far_as_it_goes():
    (band,) = result(spoil=math.nan).bands
    svg = str(curve_chart(band))
    assert "nan" not in svg
    assert svg.count("polyline") >= 2
    nothing = dataclasses.replace(band, a=((math.nan,) * 3,), b=(), bin_steps=(1,))
    assert curve_chart(nothing) == ""


def test_numbers_that_only_inform_are_not_on_the_terminal():
    text = shown(result())
    assert "last fifth" in text
    assert "steps 1 to 12" not in text
    assert "steps 1 to 12" in render_long_check_markdown(result())


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("verify-*.json")), ids=lambda path: path.name)
def test_an_old_long_check_reads(path):
    outcome = from_json(LongCheckResult, path.read_text(encoding="utf-8"))
    assert outcome.series
    assert outcome.bands
    assert "Equivalent" in render_long_check_html(outcome)


def test_there_is_one_to_read():
    assert list(GOLDEN.glob("verify-*.json"))

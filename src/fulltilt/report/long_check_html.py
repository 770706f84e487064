"""The report of a long check as one HTML page that loads nothing."""

from __future__ import annotations

from fulltilt.records.long_run import Judgement, LongCheckResult
from fulltilt.report.curve_chart import curve_chart, interval_chart
from fulltilt.report.facts import machine_facts
from fulltilt.report.html import page_template, version
from fulltilt.report.long_check_words import (
    HEADLINES,
    how_judged,
    long_facts,
    long_headline,
    margin_rule,
    run_words,
    series_rows,
)
from fulltilt.report.printable import command_line
from fulltilt.report.words import recipe_words

_TONES = {Judgement.EQUIVALENT: "good", Judgement.DIFFERENT: "bad", Judgement.UNDECIDED: "calm"}


def render_long_check_html(result: LongCheckResult) -> str:
    """The page, as text that encodes as UTF-8."""
    ordered = sorted(result.series, key=lambda series: not series.decisive)
    charts = [interval_chart(series.equivalence) if series.equivalence is not None else "" for series in ordered]
    return page_template("long_check.html.j2").render(
        title=HEADLINES[result.judgement],
        headline=long_headline(result),
        tone=_TONES[result.judgement],
        command=command_line(result.command),
        recipe_words=recipe_words(result.recipe),
        result=result,
        rows=list(zip(series_rows(result.series), charts, strict=True)),
        curves=[(band.name or "loss", curve_chart(band)) for band in result.bands],
        how=how_judged(result),
        margin=margin_rule(result),
        runs=[run_words(run) for run in result.runs],
        facts=[*long_facts(result), *machine_facts(result.machine)],
        version=version(),
    )

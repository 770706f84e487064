import dataclasses
import re

import pytest
from markdown_it import MarkdownIt

from fulltilt.records.result import TuneResult
from fulltilt.report.markdown import code, escape, render_markdown, table
from fulltilt.report.words import OUTCOME_WORDS


def rendered(text: str) -> str:
    return str(MarkdownIt("commonmark", {"html": True}).enable("table").render(text))


@pytest.fixture(params=["result", "nothing_helps", "interrupted", "every_outcome"])
def any_result(request: pytest.FixtureRequest) -> TuneResult:
    answer: TuneResult = request.getfixturevalue(request.param)
    return answer


def test_all_rows_of_a_table_have_as_many_cells(any_result: TuneResult) -> None:
    text = render_markdown(any_result)
    tables = re.findall(r"(?:^\|.*\|$\n?)+", text, re.MULTILINE)
    assert len(tables) >= 1
    for lines in (found.strip().splitlines() for found in tables):
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
        assert len(counts) == 1
        assert len(lines) >= 3
    assert rendered(text).count("<table>") == len(tables)


def test_hostile_words_are_shown_as_they_are(every_outcome: TuneResult) -> None:
    text = render_markdown(every_outcome)
    html = rendered(text)
    assert "<script>" not in html
    assert "&lt;script&gt;alert('x')&lt;/script&gt; | `rm` \\xff\\x00 red" in html
    assert text.encode("utf-8")


@pytest.mark.parametrize("words", ["a|b", "`x`", "*a* _b_", "[l](u)", "<b>", "&lt;", "# h", "~~s~~", "back\\slash"])
def test_escaped_words_come_out_unchanged(words: str) -> None:
    cell = rendered(table(["head"], [[escape(words)]]))
    shown = words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert f"<td>{shown}</td>" in cell


@pytest.mark.parametrize("words", ["a|b", "`x`", "a ``b` c", "plain"])
def test_code_comes_out_unchanged(words: str) -> None:
    assert f"<td><code>{words}</code></td>" in rendered(table(["head"], [[code(words)]]))


def test_it_says_what_became_of_the_users_files(result: TuneResult) -> None:
    assert "| Your files | Trials wrote to an overlay that was thrown away. |" in render_markdown(result)


def test_a_line_feed_does_not_end_a_row() -> None:
    assert "\n" not in escape("a\nb")
    assert "\n" not in code("a\nb")


def test_a_fence_is_longer_than_any_in_the_command(result: TuneResult) -> None:
    text = render_markdown(dataclasses.replace(result, command=("python", "```", "x")))
    assert "````console\npython '```' x\n````" in text


def test_the_report_says_what_came_out(result: TuneResult) -> None:
    text = render_markdown(result)
    assert text.startswith("# fulltilt: 1.62x faster \\[1.55, 1.70\\], numbers kept (ROUNDING)\n")
    assert "| `precision(dtype=bfloat16)` | kept | 1.41x \\[1.38, 1.44\\] | kept (ROUNDING) |" in text
    assert "| `channels_last` | no effect | no effect | not judged |" in text
    assert "1.00x" not in text
    assert "> **Warning:** The machine was busy" in text


def test_every_outcome_is_named(every_outcome: TuneResult) -> None:
    text = render_markdown(every_outcome)
    for words in OUTCOME_WORDS.values():
        assert f" | {words} | " in text
    assert "**broken** (ROUNDING)" in text


def test_broken_evidence_is_marked(result: TuneResult) -> None:
    verdict = dataclasses.replace(result.verdict, kept=False, broken=result.verdict.evidence[:1])
    text = render_markdown(dataclasses.replace(result, verdict=verdict))
    assert text.count("- **broken:** Losses") == 1
    assert text.count("Losses of the first 8 steps") == 1


def test_results_without_a_recipe_read_well(nothing_helps: TuneResult, interrupted: TuneResult) -> None:
    assert "There is no recipe: run the command as it is." in render_markdown(nothing_helps)
    text = render_markdown(interrupted)
    assert "> **Warning:** Not everything was tried." in text
    assert "No technique was tried." in text
    assert "Not measured." in text

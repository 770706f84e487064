import base64
import dataclasses
import hashlib
import re
from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from fulltilt.records.journal import ComparisonRecord
from fulltilt.records.result import TuneResult
from fulltilt.report.html import render_html
from fulltilt.report.words import OUTCOME_WORDS

_VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Checks that every element is closed in its turn, and keeps what tests ask for."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(attrs) == len(dict(attrs)), f"an attribute twice in <{tag}>"
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.text += data
            if "tr" in self.open:
                self.rows[-1] += data

    def row_of(self, name: str) -> str:
        return next(row for row in self.rows if row.strip().startswith(name))

    def ids(self) -> list[str]:
        return [attributes["id"] or "" for _, attributes in self.tags if "id" in attributes]


@pytest.fixture(params=["result", "nothing_helps", "interrupted", "every_outcome"])
def any_result(request: pytest.FixtureRequest) -> TuneResult:
    answer: TuneResult = request.getfixturevalue(request.param)
    return answer


def test_the_page_is_balanced_and_its_ids_are_unique(
    any_result: TuneResult, comparisons: list[ComparisonRecord]
) -> None:
    page = Page(render_html(any_result, comparisons))
    assert len(page.ids()) == len(set(page.ids()))
    targets = {attributes["data-copy"] for _, attributes in page.tags if "data-copy" in attributes}
    assert targets <= set(page.ids())


def test_the_page_loads_nothing(any_result: TuneResult, comparisons: list[ComparisonRecord]) -> None:
    text = render_html(any_result, comparisons)
    page = Page(text)
    assert not {"link", "img", "iframe", "object", "embed", "base", "use", "image"} & {tag for tag, _ in page.tags}
    links = [attributes[key] for _, attributes in page.tags for key in ("src", "href") if key in attributes]
    assert all(link is not None and link.startswith("#") for link in links)
    assert "url(" not in text
    assert "@import" not in text


def test_only_the_script_of_the_page_may_run(every_outcome: TuneResult) -> None:
    text = render_html(every_outcome, ())
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(
        attributes["content"] for tag, attributes in Page(text).tags if attributes.get("http-equiv") and tag == "meta"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert f"script-src 'sha256-{digest}'" in policy


def test_the_page_is_small(result: TuneResult, comparisons: list[ComparisonRecord]) -> None:
    assert len(render_html(result, comparisons).encode("utf-8")) < 60_000


def test_a_long_tune_still_makes_a_small_page(result: TuneResult, compare: Callable[..., ComparisonRecord]) -> None:
    many = [compare("climb", (), (), ratio=1.1, num_pairs=6, num_blocks=40, seed=seed) for seed in range(60)]
    long = dataclasses.replace(result, trials=result.trials * 100)
    text = render_html(long, many)
    assert len(text.encode("utf-8")) < 700_000
    assert "600 more are in journal.jsonl." in text
    assert "20 more are in journal.jsonl." in text


def test_hostile_words_are_shown_and_do_nothing(
    every_outcome: TuneResult, comparisons: list[ComparisonRecord], hostile: str
) -> None:
    hostile_comparison = dataclasses.replace(
        comparisons[1], b=(dataclasses.replace(every_outcome.recipe.techniques[0], name=hostile),)
    )
    text = render_html(every_outcome, [hostile_comparison])
    page = Page(text)
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert page.text.count("<script>alert('x')</script>") > 10
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e\ud800-\udfff]", text)
    assert text.encode("utf-8")


def test_every_outcome_is_named(every_outcome: TuneResult) -> None:
    page = Page(render_html(every_outcome, ()))
    for outcome, words in OUTCOME_WORDS.items():
        assert words in page.row_of(f"t_{outcome.value}")


def test_no_effect_has_no_number_and_no_bar(result: TuneResult) -> None:
    text = render_html(result, ())
    assert "1.00x" not in text
    assert re.search(r"\d\.\d+x", Page(text).row_of("channels_last")) is None
    row = text[text.index(">channels_last") : text.index(">dataloader")]
    assert "<svg" not in row


def test_the_page_says_what_came_out(result: TuneResult, comparisons: list[ComparisonRecord]) -> None:
    page = Page(render_html(result, comparisons))
    words = " ".join(page.text.split())
    assert "1.62x faster [1.55, 1.70]" in words
    assert "confirmed in fresh processes" in words
    assert "fulltilt run -r recipe.yaml -- python train.py --lr 3e-4 --data 'shake speare.txt'" in words
    assert "paid for that after 37 steps" in words
    assert result.warnings[0] in words


def test_the_page_says_what_became_of_the_users_files(result: TuneResult, comparisons: list[ComparisonRecord]) -> None:
    assert "<dt>Your files</dt> <dd>Trials wrote to an overlay" in render_html(result, comparisons)


def test_sections_come_in_the_order_in_which_one_asks(result: TuneResult, comparisons: list[ComparisonRecord]) -> None:
    heads = re.findall(r"<h2>(.*?)</h2>", render_html(result, comparisons))
    assert heads == [
        "Command",
        "Recipe",
        "Techniques",
        "What each member is worth",
        "Where the time of a step goes",
        "Are the numbers still right?",
        "Block by block",
        "Machine, versions and script",
        "Trials",
        "Warnings",
    ]


def test_broken_evidence_is_marked_and_comes_first(result: TuneResult) -> None:
    sentence = "BatchNorm counts differ: 8 against 16 (bn1.num_batches_tracked)."
    verdict = dataclasses.replace(
        result.verdict, kept=False, evidence=(*result.verdict.evidence, sentence), broken=(sentence,)
    )
    text = render_html(dataclasses.replace(result, verdict=verdict), ())
    items = re.findall(r'<li class="(broken|held)">(.*?)</li>', text)
    assert items[0][0] == "broken"
    assert sentence in items[0][1]
    assert [kind for kind, _ in items].count("broken") == 1
    assert "numbers broken (ROUNDING)" in text


def test_a_refused_technique_shows_its_broken_evidence(every_outcome: TuneResult) -> None:
    assert "numbers broken, not in the recipe" in render_html(every_outcome, ())


def test_phases_that_were_not_measured_are_said_so(result: TuneResult) -> None:
    assert result.phases is not None
    unmeasured = dataclasses.replace(result.phases, data_wait=None)
    words = " ".join(Page(render_html(dataclasses.replace(result, phases=unmeasured), ())).text.split())
    assert "waiting for data not measured" in words


def test_each_comparison_with_blocks_has_a_chart(result: TuneResult, comparisons: list[ComparisonRecord]) -> None:
    assert render_html(result, comparisons).count("<figure>") == 6
    assert "No blocks were measured." in render_html(result, ())


def test_nothing_helps_reads_as_an_answer(nothing_helps: TuneResult) -> None:
    words = " ".join(Page(render_html(nothing_helps, ())).text.split())
    assert "Nothing helps here" in words
    assert "There is none: run the command as it is." in words
    assert "6 no gain, 1 no effect, 1 refused" in words
    assert "fulltilt run" not in words
    assert "faster [" not in words


def test_an_interrupted_tune_says_what_is_missing(interrupted: TuneResult) -> None:
    words = " ".join(Page(render_html(interrupted, ())).text.split())
    assert "Interrupted before a recipe was confirmed" in words
    assert "not everything was tried" in words
    assert "No technique was tried." in words
    assert "Not measured." in words


def test_a_failed_trial_shows_its_message(result: TuneResult) -> None:
    page = Page(render_html(result, ()))
    assert "It was ended by SIGKILL." in page.row_of("005-")
    assert "8 trials, 1 of which failed" in page.text


def test_a_long_message_is_cut(every_outcome: TuneResult) -> None:
    assert "more characters)" in render_html(every_outcome, ())

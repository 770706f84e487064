import dataclasses
import io
from collections.abc import Callable

import pytest
from rich.console import Console

from fulltilt.records.journal import SpeedupInterval
from fulltilt.records.result import TechniqueResult, TuneResult
from fulltilt.records.words import TechniqueOutcome
from fulltilt.report.terminal import print_result
from fulltilt.report.words import OUTCOME_WORDS

DIRECTORY = ".fulltilt/train-20260101-120000"


def printed(result: TuneResult, *, width: int = 80, colours: bool = False, directory: str = DIRECTORY) -> str:
    stream = io.StringIO()
    print_result(result, Console(file=stream, width=width, force_terminal=colours, highlight=False), directory)
    return stream.getvalue()


@pytest.mark.parametrize("name", ["result", "nothing_helps", "interrupted", "every_outcome"])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_it_fits_the_terminal(request: pytest.FixtureRequest, name: str, width: int) -> None:
    lines = printed(request.getfixturevalue(name), width=width).splitlines()
    wrapped = [line for line in lines if not line.startswith(("Next", "Report"))]
    assert max(map(len, wrapped)) <= width


def test_it_is_one_screenful(result: TuneResult) -> None:
    assert len(printed(result).splitlines()) <= 24


def test_many_techniques_and_warnings_still_are_one_screenful(result: TuneResult) -> None:
    long = dataclasses.replace(result, techniques=result.techniques * 5, warnings=tuple(map(str, range(9))))
    text = printed(long)
    assert len(text.splitlines()) <= 30
    assert "and 26 more" in text
    assert "and 6 more warnings, in the report" in text


def test_it_says_what_came_out_and_what_to_do_next(result: TuneResult) -> None:
    text = printed(result)
    assert text.startswith("1.62x faster [1.55, 1.70], numbers kept (ROUNDING)\n")
    assert "precision 1.39x [1.35, 1.43], fused_optimizer 1.15x [1.13, 1.17]" in text
    assert "after 37 steps" in text
    assert f"{DIRECTORY}/report.html" in text
    run = f"fulltilt run -r {DIRECTORY}/recipe.yaml -- python train.py --lr 3e-4 --data 'shake speare.txt'"
    assert text.rstrip().endswith(run)


def test_it_says_what_became_of_the_users_files(result: TuneResult, every_outcome: TuneResult) -> None:
    assert "Files     Trials wrote to an overlay that was thrown away." in printed(result)
    assert "Files     What Python wrote in trials was redirected" in printed(every_outcome)
    assert "Files" not in printed(dataclasses.replace(result, protection=None))


def test_no_effect_is_no_number(result: TuneResult) -> None:
    text = printed(result)
    assert "1.00x" not in text
    assert "no effect  channels_last               the model has no convolution" in text


def test_every_outcome_is_named(every_outcome: TuneResult) -> None:
    lines = printed(every_outcome).splitlines()
    for outcome, words in OUTCOME_WORDS.items():
        assert any(line.startswith(words) and f"t_{outcome.value}" in line for line in lines)


def test_words_of_the_user_are_not_obeyed(every_outcome: TuneResult) -> None:
    text = printed(every_outcome, width=200, colours=False)
    assert "[bold]b[/bold]" in text
    assert not {"\x1b", "\x00", "\u202e", "\udcff"} & set(text)


def test_colours_are_only_for_terminals_that_have_them(result: TuneResult) -> None:
    assert "\x1b[" in printed(result, colours=True)
    assert "\x1b[" not in printed(result)


def test_a_terminal_without_unicode_gets_escapes(result: TuneResult) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    unusual = dataclasses.replace(result, command=("python", "größe.py"), warnings=("µ",))
    print_result(unusual, Console(file=stream, width=80), "é")
    stream.seek(0)
    assert "python 'gr\\xf6\\xdfe.py'" in stream.read()


def test_a_gain_that_was_not_taken_is_explained(result: TuneResult, speedup: Callable[..., SpeedupInterval]) -> None:
    lucky = TechniqueResult(
        name="compile",
        options={},
        outcome=TechniqueOutcome.NO_GAIN,
        reason="a gain that chance explains",
        speedup=speedup(1.1),
    )
    text = printed(dataclasses.replace(result, techniques=(lucky,)))
    assert "no gain  compile  1.10x [1.07, 1.13]  a gain that chance explains" in text


def test_results_without_a_recipe_read_well(nothing_helps: TuneResult, interrupted: TuneResult) -> None:
    text = printed(nothing_helps)
    assert text.startswith("Nothing helps here: ")
    assert "Next" not in text
    assert "recipe.yaml" not in text
    assert "Note      not everything was tried" in printed(interrupted)


def test_a_warning_that_is_the_headline_is_said_once(nothing_helps: TuneResult) -> None:
    short = "The command makes only 12 training steps."
    text = printed(dataclasses.replace(nothing_helps, summary=short, warnings=(short,)))
    assert text.count(short) == 1


def test_a_folder_with_blanks_can_be_pasted(result: TuneResult) -> None:
    assert "fulltilt run -r 'my runs/recipe.yaml' -- " in printed(result, directory="my runs")

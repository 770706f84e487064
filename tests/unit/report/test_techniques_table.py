import io

from rich.console import Console

from fulltilt.records.words import Numerics
from fulltilt.report.techniques_table import TechniqueRow, print_techniques

ROWS = [
    TechniqueRow(
        name="precision",
        summary="Runs matrix products in bfloat16 through autocast around the model, wherever it is called.",
        numerics=Numerics.ROUNDING,
        stage="MODEL",
        available=True,
    ),
    TechniqueRow(
        name="cudnn_benchmark",
        summary="Lets cuDNN time its convolution algorithms. [bold]Not markup[/bold]",
        numerics=Numerics.EXACT,
        stage="BACKEND",
        available=False,
        reason="it needs a CUDA device",
    ),
]


def printed(rows: list[TechniqueRow], width: int = 80) -> str:
    stream = io.StringIO()
    print_techniques(rows, Console(file=stream, width=width, highlight=False))
    return stream.getvalue()


def test_each_technique_is_listed_with_its_class_and_whether_it_can_be_used() -> None:
    lines = printed(ROWS).splitlines()
    assert lines[1].split()[:3] == ["precision", "ROUNDING", "yes"]
    assert any(line.split()[:3] == ["cudnn_benchmark", "EXACT", "no"] for line in lines)
    assert any("not here: it needs a CUDA device" in line for line in lines)
    assert "2 techniques, 1 of which can be used on this machine." in lines


def test_it_fits_in_80_columns_and_explains_the_classes_that_occur() -> None:
    text = printed(ROWS)
    assert max(map(len, text.splitlines())) <= 80
    assert "EXACT: the same numbers" in text
    assert "LOSSY" not in text


def test_markup_is_shown_as_text() -> None:
    assert "[bold]Not markup[/bold]" in printed(ROWS, width=200)


def test_an_empty_list() -> None:
    assert "0 techniques" in printed([])

import subprocess

import pytest

from fulltilt.report.printable import command_line, one_line, printable, shorten


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, äöü, 漢字", "plain text, äöü, 漢字"),
        ("a\nb\tc", "a\nb\tc"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://example.org\x07link\x1b]8;;\x07", "link"),
        ("nul\x00bell\x07", "nul\\x00bell\\x07"),
        ("not UTF-8: \udcff", "not UTF-8: \\xff"),
        ("lone \ud800", "lone \\ud800"),
        ("\u202etxt.exe", "\\u202etxt.exe"),
    ],
)
def test_what_cannot_be_printed_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_printable_twice_is_printable_once(hostile: str) -> None:
    assert printable(printable(hostile)) == printable(hostile)


def test_the_result_always_encodes() -> None:
    every_character = "".join(map(chr, range(0x110000)))
    assert printable(every_character).encode("utf-8")


def test_one_line_has_no_line_feed() -> None:
    assert one_line(" a\n\n b\tc ") == "a b c"


def test_shorten_says_how_much_is_missing() -> None:
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdefgh", 6) == "abcdef ... (2 more characters)"


@pytest.mark.parametrize(
    "argument",
    [
        "",
        "plain",
        "a b",
        "it's",
        "$HOME `id`",
        "a\nb",
        "tab\there",
        "\x01\x7f",
        "\\n'\x02",
        "\udcff\udc80",
        "\u202eé",
        "*",
    ],
)
def test_a_command_line_means_the_same_in_bash(argument: str) -> None:
    line = command_line(["printf", "%s", argument])
    assert line == printable(line)
    assert "\n" not in line
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
    assert done.stdout == argument.encode("utf-8", "surrogateescape")

"""Text of the user's (commands, output, file names) made safe to show: no control characters, no lone surrogates."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"
    "\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"  # invisible, or they reorder the text around them
    "\ud800-\udfff\ufffe\uffff]"
)


def printable(text: str) -> str:
    """`text` without terminal colours, every other unprintable character as an escape such as ``\\x00``.

    Line feeds and tabs stay; the result always encodes as UTF-8. A byte that was no UTF-8 (a surrogate of
    `os.fsdecode`) is shown as that byte.
    """
    text = _ANSI.sub("", text.replace("\r\n", "\n")).replace("\r", "\n")
    return _UNPRINTABLE.sub(lambda match: _escape(match.group()), text)


def one_line(text: str) -> str:
    """`printable(text)` with every run of white space as one space."""
    return " ".join(printable(text).split())


def shorten(text: str, limit: int) -> str:
    """`text`, or its first characters and how many more there are."""
    if len(text) <= limit:
        return text
    return f"{text[:limit].rstrip()} ... ({len(text) - limit} more characters)"


def command_line(command: Sequence[str]) -> str:
    """`command` as a line that can be pasted into bash, whatever bytes are in it."""
    return " ".join(_quote(argument) for argument in command)


def _quote(argument: str) -> str:
    """`shlex.quote`, or bash's $'...' where the argument has characters that would not survive being shown."""
    if argument == printable(argument) and not set("\n\t") & set(argument):
        return shlex.quote(argument)
    escaped = argument.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    return "$'" + _UNPRINTABLE.sub(lambda match: _escape_bytes(match.group()), escaped) + "'"


def _escape(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _escape_bytes(character: str) -> str:
    try:
        encoded = os.fsencode(character)
    except UnicodeEncodeError:
        encoded = character.encode("utf-8", "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in encoded)

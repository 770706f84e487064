"""Durations and other quantities, from and to what people write."""

import re

_SECONDS_PER = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


def parse_duration(text: str) -> float:
    """Seconds in `text`, such as "90", "90s", "10m", "1h30m".

    Raises:
        ValueError: when it is no duration, or is not positive.
    """
    stripped = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", stripped):
        seconds = float(stripped)
    else:
        parts = _DURATION_PART.findall(stripped)
        if not parts or _DURATION_PART.sub("", stripped).strip():
            raise ValueError(f"{text!r} is not a duration; write it like 90s, 10m or 1h30m")
        seconds = sum(float(number) * _SECONDS_PER[unit] for number, unit in parts)
    if seconds <= 0:
        raise ValueError(f"{text!r} is not a positive duration; write it like 90s, 10m or 1h30m")
    return seconds


def format_seconds(seconds: float) -> str:
    """A duration to read: "850 us", "12.3 ms", "4.2 s", "3 min 20 s", "2 h 05 min"."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def parse_share(text: str) -> float:
    """A share between 0 and 1 in `text`, such as "2%" or "0.02".

    Raises:
        ValueError: when it is none, or is not between 0 and 1.
    """
    stripped = text.strip()
    number, divisor = (stripped[:-1], 100.0) if stripped.endswith("%") else (stripped, 1.0)
    try:
        share = float(number) / divisor
    except ValueError:
        share = float("nan")
    if not 0 < share < 1:
        raise ValueError(f"{text!r} is not a share between 0 and 1; write it like 2% or 0.02")
    return share


def format_speedup(ratio: float) -> str:
    """A ratio of speeds to read: "1.43x"."""
    return f"{ratio:.2f}x"

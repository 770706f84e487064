import pytest

from fulltilt.units import format_seconds, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), (" 1.5 M ", 90), ("250ms", 0.25)]
)
def test_durations_people_write(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "ten", "10x", "-5m", "0", "5m!", "m"])
def test_what_is_no_duration_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="write it like 90s, 10m or 1h30m"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.00085, "850 us"), (0.0123, "12.3 ms"), (4.2, "4.2 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")],
)
def test_durations_to_read(seconds, text):
    assert format_seconds(seconds) == text

import os

from fulltilt.trials.output_log import TAIL_BYTES, OutputLog, read_tail


def test_the_space_of_old_output_is_given_back_while_it_is_written(tmp_path):
    log = OutputLog(tmp_path / "output.log")
    with log.open() as file:
        for _ in range(10):
            file.write(b"x" * (4 << 20))
            file.flush()
            log.trim()
        file.write(b"the end\n")
    assert log.tail().endswith("xthe end\n")
    assert os.stat(tmp_path / "output.log").st_blocks * 512 < 20 << 20


def test_where_space_cannot_be_given_back_the_file_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr("fulltilt.trials.output_log._punch_hole", lambda descriptor, num_bytes: False)
    log = OutputLog(tmp_path / "output.log")
    with log.open() as file:
        for _ in range(10):
            file.write(b"x" * (4 << 20))
            file.flush()
            log.trim()
        file.write(b"the end\n")
    assert log.tail().endswith("the end\n")
    assert (tmp_path / "output.log").stat().st_size < 20 << 20


def test_at_the_end_a_small_file_is_kept(tmp_path):
    path = tmp_path / "output.log"
    path.write_bytes(b"y" * 1_000_000 + b"last\n")
    OutputLog(path).keep_tail()
    assert path.read_bytes().startswith(b"[earlier output left out]\n")
    assert path.read_bytes().endswith(b"last\n")
    assert path.stat().st_size < 2 * TAIL_BYTES
    assert os.listdir(tmp_path) == ["output.log"]


def test_short_output_is_kept_whole(tmp_path):
    path = tmp_path / "output.log"
    path.write_bytes(b"a\nb\n")
    OutputLog(path).keep_tail()
    assert path.read_bytes() == b"a\nb\n"


def test_what_is_not_there_is_empty(tmp_path):
    log = OutputLog(tmp_path / "none.log")
    log.trim()
    log.keep_tail()
    assert (log.tail(), read_tail(tmp_path)) == ("", b"")

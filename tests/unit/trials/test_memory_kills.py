import pytest

from fulltilt.trials.memory_kills import count_memory_kills


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return write


def count(tmp_path):
    return count_memory_kills(tmp_path / "proc", tmp_path / "cgroup")


def test_the_machines_counter(tmp_path, write):
    write("proc/vmstat", "nr_free_pages 12\noom_kill 3\ndrop_pagecache 0\n")
    assert count(tmp_path) == 3


def test_the_counter_of_a_control_group_of_version_2(tmp_path, write):
    write("proc/self/cgroup", "0::/user.slice/job\n")
    write("cgroup/user.slice/job/memory.events", "low 0\nhigh 0\nmax 7\noom 2\noom_kill 2\noom_group_kill 0\n")
    assert count(tmp_path) == 2


def test_the_counter_of_a_control_group_of_version_1(tmp_path, write):
    write("proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/docker/abc\n0::/\n")
    write("cgroup/memory/docker/abc/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert count(tmp_path) == 1


def test_a_container_that_sees_its_own_group_at_the_root(tmp_path, write):
    write("proc/self/cgroup", "0::/docker/of/the/host\n")
    write("cgroup/memory.events", "oom_kill 4\n")
    assert count(tmp_path) == 4


def test_all_of_them_count(tmp_path, write):
    write("proc/vmstat", "oom_kill 3\n")
    write("proc/self/cgroup", "0::/\n")
    write("cgroup/memory.events", "oom_kill 4\n")
    assert count(tmp_path) == 7


def test_nothing_to_read_is_nothing_killed(tmp_path):
    assert count(tmp_path) == 0


def test_this_machine_can_be_asked():
    assert count_memory_kills() >= 0

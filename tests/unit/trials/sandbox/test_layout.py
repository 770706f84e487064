import os

import pytest

from fulltilt.trials.sandbox.layout import Layout, lay_out, named_folders
from fulltilt.trials.sandbox.mounts import Mount

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def mount(path, kind="ext4", *, read_only=False):
    return Mount(path=str(path), kind=kind, read_only=read_only)


def laid_out(mounts, working, *, may_mount=False, named=(), real=()):
    named = [str(working), *map(str, named)]
    return lay_out(mounts, named=named, real=map(str, real), working=str(working), may_mount=may_mount)


@pytest.fixture
def disk(tmp_path):
    """A file system with a user's folder, and one in that."""
    (tmp_path / "disk" / "me" / "project" / "data").mkdir(parents=True)
    return tmp_path / "disk"


def test_the_topmost_folder_that_can_be_written_to_gets_the_overlay(disk):
    layout = laid_out([mount(disk)], disk / "me" / "project")
    assert layout.overlays == (str(disk),)
    assert layout.is_overlaid(str(disk / "me" / "project" / "data"))
    assert not layout.is_overlaid(str(disk.parent))
    assert (layout.redirected, layout.binds) == ((), ())


def test_pseudo_and_read_only_file_systems_are_left_alone(disk):
    data = disk / "me" / "project" / "data"
    assert laid_out([mount(disk, "proc")], disk / "me").overlays == (str(disk / "me"),)  # as it is named
    layout = laid_out([mount(disk), mount(data, read_only=True)], disk / "me", may_mount=True)
    assert (layout.overlays, layout.binds) == ((str(disk),), (str(data),))


def test_who_may_mount_gets_mounts_within_back(disk):
    data = disk / "me" / "project" / "data"
    layout = laid_out([mount(disk), mount(data, "nfs4")], disk / "me" / "project", may_mount=True)
    assert layout.overlays == (str(disk), str(data))
    assert layout.redirected == ()


def test_who_may_not_mount_gets_overlays_beside_mounts(disk):
    data, beside = disk / "me" / "project" / "data", disk / "me" / "other"
    beside.mkdir()
    layout = laid_out([mount(disk), mount(data, "nfs4")], disk / "me" / "project")
    assert layout.overlays == (str(beside), str(data))
    assert str(disk / "me" / "project") in layout.redirected
    assert not layout.is_overlaid(str(disk / "me" / "project"))


@needs_root
def test_a_folder_of_a_shared_group_has_no_overlay_without_the_right_to_mount(disk):
    project = disk / "me" / "project"
    os.chown(project, os.getuid(), 4343)
    layout = laid_out([mount(disk)], project)
    assert layout.overlays == (str(disk), str(project / "data"))  # what is the user's own in it can
    assert layout.redirected == layout.binds == (str(project),)
    assert laid_out([mount(disk)], project, may_mount=True).redirected == ()


@needs_root
def test_a_folder_of_a_shared_group_within_the_working_folder_is_found(disk):
    data = disk / "me" / "project" / "data"
    os.chown(data, os.getuid(), 4343)
    assert laid_out([mount(disk)], disk / "me" / "project").redirected == (str(data),)


@needs_root
def test_a_folder_of_everybodys_has_an_overlay(disk):
    os.chown(disk, 4242, 4242)
    disk.chmod(0o1777)
    assert str(disk) in laid_out([mount(disk)], disk / "me").overlays


def test_what_must_stay_real_is_bound_back_where_it_would_be_hidden(disk):
    scratch, elsewhere, gone = disk / "scratch", disk.parent / "elsewhere", disk / "gone"
    scratch.mkdir()
    elsewhere.mkdir()
    layout = laid_out([mount(disk)], disk / "me", real=[scratch, elsewhere, gone])
    assert layout.binds == (str(scratch),)


def test_caches_get_an_overlay_each_and_the_outer_one_wins(disk):
    layout = Layout(overlays=(str(disk),), redirected=(), binds=(str(disk / "b" / "scratch"),))
    folders = [disk / "a" / "inner", disk / "a", disk / "b", disk.parent, disk]
    assert layout.with_caches(map(str, folders)).caches == (str(disk / "a"),)


def test_folders_that_the_command_names_are_seen_to(disk):
    (disk / "repository" / ".git").mkdir(parents=True)
    script = disk / "repository" / "tools" / "train.py"
    script.parent.mkdir()
    script.touch()
    words = ["python", str(script), f"--out={disk}/me/project/not/yet", "--lr", "3e-4", "x" * 5000, "/", "a\0b"]
    working = str(disk / "me")
    named = named_folders(words, working, [str(disk / "me" / "project" / "data"), "/no/such/folder", "text"])
    expected = ["me", "repository/tools", "repository", "me/project", "me/project/data"]
    assert {str(disk / name) for name in expected} <= set(named)
    assert "/" not in named

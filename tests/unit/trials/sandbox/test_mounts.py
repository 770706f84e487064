from fulltilt.trials.sandbox.mounts import is_in_memory, is_within, mount_of, read_mounts

MOUNTINFO = r"""27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw
30 27 0:33 / /data\040of\040ours rw,relatime master:1 propagate_from:2 - nfs4 server:/x rw,vers=4.2
31 27 0:34 / /opt/images ro,relatime - ext4 /dev/vdb rw
32 27 0:35 / /mnt/cd rw,relatime - iso9660 /dev/sr0 ro
33 27 0:36 / /tmp rw - tmpfs tmpfs rw,size=4k
34 27 0:37 / /home rw - ext4 /dev/vdc rw
35 34 0:38 / /home rw - autofs auto rw
"""


def read(tmp_path):
    path = tmp_path / "mountinfo"
    path.write_text(MOUNTINFO)
    return read_mounts(str(path))


def test_only_what_can_hold_files_of_the_users_counts(tmp_path):
    mounts = read(tmp_path)
    assert [mount.path for mount in mounts if mount.holds_files] == ["/", "/data of ours", "/tmp"]


def test_a_later_mount_hides_an_earlier_one(tmp_path):
    assert [mount.kind for mount in read(tmp_path) if mount.path == "/home"] == ["autofs"]


def test_a_folder_lies_on_the_innermost_mount(tmp_path):
    mounts = read(tmp_path)
    assert mount_of("/data of ours/x", mounts).kind == "nfs4"
    assert mount_of("/database", mounts).kind == "ext4"
    assert is_in_memory("/tmp/x", mounts)
    assert not is_in_memory("/", mounts)


def test_a_neighbour_with_a_longer_name_is_not_within():
    assert is_within("/a/b", "/a")
    assert is_within("/a", "/a")
    assert is_within("/a", "/")
    assert not is_within("/ab", "/a")


def test_this_machine_has_a_root():
    assert any(mount.path == "/" for mount in read_mounts())

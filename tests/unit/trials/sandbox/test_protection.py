"""The means of protection, tried as each kind of account: root, root in a container, a plain user."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading

import pytest

from accounts import ACCOUNTS, TEAM, give_to, run_as

PROGRAM = """
import json, os, subprocess, sys
from pathlib import Path
from fulltilt.trials.sandbox.protection import choose_protection
here = Path.cwd()
protection = choose_protection(["sh", "run.sh"], cwd=here, environment=os.environ, results=here)
record = protection.record
told = {"means": record.means, "reason": record.reason, "redirected": record.redirected, "runs": []}
for number, command in enumerate(json.loads(os.environ["COMMANDS"])):
    scratch = protection.scratch / str(number)
    scratch.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "SCRATCH": str(scratch), "X": "1"}
    try:
        process = protection.start(command, scratch=scratch, cwd=here, env=env, stdout=subprocess.PIPE, stderr=2)
    except OSError as error:
        told["runs"].append([type(error).__name__, error.strerror])
        continue
    output = process.communicate()[0].decode()
    told["runs"].append([process.returncode, output.replace(str(process.pid), "PID")])
    told["real"] = sorted(os.listdir(scratch))
    protection.keep_caches(scratch)
from fulltilt.trials.removal import remove_tree
remove_tree(protection.scratch)
told["left"] = protection.scratch.exists()
print(json.dumps(told))
"""


@pytest.fixture(params=ACCOUNTS)
def account(request):
    return request.param


@pytest.fixture
def place(tmp_path, account):
    """A folder that the account can reach and write to; its parents are everybody's to pass."""
    for parent in (tmp_path, *tmp_path.parents):
        if parent.name.startswith(("pytest", "test_")):
            os.chmod(parent, 0o755)
    folder, home = tmp_path / "project", tmp_path / "home"
    for made in (folder, home):
        made.mkdir()
    (folder / "old.txt").write_text("old\n")
    (folder / "run.sh").write_text("true\n")
    give_to(account, folder, home, folder / "old.txt")
    return folder


@pytest.fixture
def run(place, account):
    """run(*commands) -> what became of them under the strongest protection; skipped where that is no overlay."""

    def run(*commands, **environment):
        told = run_as(
            account,
            PROGRAM,
            cwd=place,
            HOME=str(place.parent / "home"),
            PATH="/usr/local/bin:/usr/bin:/bin",
            COMMANDS=json.dumps(commands),
            **environment,
        )
        answer = json.loads(told)
        if answer["means"] != "overlay":
            pytest.skip(f"no overlay here: {answer['reason']}")
        assert not answer["left"]
        return answer

    return run


def shell(text):
    return ["sh", "-c", text]


def test_writes_are_seen_by_the_command_and_by_nobody_else(run, place):
    told = run(shell("echo new >> old.txt; echo x > fresh; rm run.sh; cat old.txt; ls"))
    assert told["runs"] == [[0, "old\nnew\nfresh\nold.txt\n"]]
    assert (place / "old.txt").read_text() == "old\n"
    assert sorted(os.listdir(place)) == ["old.txt", "run.sh"]


def test_a_folder_that_was_there_can_be_removed_and_made_again(run, place, account):
    (place / "runs").mkdir()
    (place / "runs" / "a").write_text("a")
    give_to(account, place / "runs", place / "runs" / "a")
    told = run(shell("rm -r runs && mkdir runs && ls runs && mv runs moved && ls"))
    assert told["runs"] == [[0, "moved\nold.txt\nrun.sh\n"]]
    assert (place / "runs" / "a").read_text() == "a"


def test_scratch_stays_real(run):
    assert "record" in run(shell("echo x > $SCRATCH/record"))["real"]


def test_the_process_is_the_command_itself(run, place):
    told = run(
        shell("echo $$; pwd; echo $HOME $X; env | grep -c LC_CTYPE; id -u; id -un 2>/dev/null; stat -c %u old.txt")
    )
    output = told["runs"][0][1]
    owner = os.stat(place / "old.txt").st_uid
    lines = output.splitlines()
    assert lines[:4] == ["PID", str(place), f"{place.parent / 'home'} 1", "0"]
    assert lines[4] == lines[-1] == str(owner)


@pytest.mark.parametrize(
    ("command", "end"),
    [
        (shell("exit 7"), 7),
        (shell("kill -9 $$"), -9),
        (shell("kill -TERM $$"), -15),
        (shell("yes | head -1; exit 3"), 3),
    ],
)
def test_its_end_is_its_own(run, command, end):
    assert run(command)["runs"][0][0] == end


def test_signals_are_handled_as_they_would_have_been(run):
    """Python ignores SIGPIPE: what it starts must not."""
    told = run(shell("grep SigIgn /proc/self/status"))
    assert int(told["runs"][0][1].split()[1], 16) & (1 << 12) == 0


def test_what_cannot_be_started_is_told_as_ever(run, place, account):
    (place / "no_permission").write_text("x")
    give_to(account, place / "no_permission")
    told = run(["no-such-command-anywhere"], ["./no_permission"])
    assert told["runs"] == [
        ["FileNotFoundError", "No such file or directory"],
        ["PermissionError", "Permission denied"],
    ]


def hear(listener, heard):
    with listener.accept()[0] as connection:
        heard.append(connection.recv(9))


def test_a_socket_that_somebody_listens_on_can_be_reached(run, place, account):
    path = place / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(str(path))
        except OSError:
            pytest.skip("the path of this test is too long for a socket")
        path.chmod(0o777)
        listener.listen(1)
        heard = []
        listener.settimeout(30)
        answering = threading.Thread(target=lambda: hear(listener, heard))
        answering.start()
        client = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({str(path)!r}); s.send(b'hello')"
        told = run(["python3", "-c", client])
        assert told["runs"][0][0] == 0
        answering.join(timeout=30)
    assert heard == [b"hello"]


def test_shared_memory_and_devices_are_the_machines(run):
    told = run(shell("echo x > /dev/null && test -d /dev/shm && stat -f -c %T /proc /dev/shm"))
    assert told["runs"] == [[0, "proc\ntmpfs\n"]]


def test_a_cache_that_one_trial_fills_is_found_by_the_next(run, place, account):
    cache = place.parent / "home" / ".cache"
    cache.mkdir()
    (cache / "old").write_text("old")
    give_to(account, cache, cache / "old")
    told = run(
        shell("mkdir ~/.cache/m && echo one > ~/.cache/m/one; rm ~/.cache/old; mkdir ~/.triton/k; echo x > not_kept"),
        shell("echo two > ~/.cache/m/two; ls ~/.cache ~/.triton; ls"),
        shell("cat ~/.cache/m/one ~/.cache/m/two"),
    )
    assert [status for status, _ in told["runs"]] == [0, 0, 0]
    assert told["runs"][1][1].split() == [f"{cache}:", "m", f"{cache.parent}/.triton:", "k", "old.txt", "run.sh"]
    assert told["runs"][2][1] == "one\ntwo\n"
    assert os.listdir(cache) == ["old"]
    assert os.listdir(place.parent / "home") == [".cache"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_folder_of_a_shared_group_can_be_worked_in(run, place, account):
    """Without the right to mount an overlay cannot hold it: then Python's writes are redirected, and that is told."""
    team = place / "team"
    team.mkdir()
    (team / "file").write_text("old\n")
    for path in (team, team / "file"):
        os.chown(path, 0, TEAM)
        path.chmod(0o2775 if path == team else 0o664)
    told = run(shell("cat team/file && echo x >> team/new && cat team/new && echo y > here"))
    assert told["runs"] == [[0, "old\nx\n"]]
    assert not (place / "here").exists()
    assert (str(team) in told["redirected"]) == (account != "as it is")
    assert (team / "new").exists() == (account != "as it is")


def test_protection_can_be_asked_to_do_without_an_overlay(place, account):
    told = run_as(account, PROGRAM, cwd=place, HOME=str(place), COMMANDS="[]", FULLTILT_PROTECTION="redirect")
    answer = json.loads(told)
    assert (answer["means"], answer["reason"]) == ("redirected", "FULLTILT_PROTECTION=redirect")
    assert not answer["left"]


NO_MORE_NAMESPACES = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'


@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare(1) to take the right away with")
def test_a_kernel_that_refuses_is_believed_and_named(tmp_path):
    within = ["unshare", "--user", "--map-root-user", "sh", "-c", NO_MORE_NAMESPACES, "sh"]
    environment = {
        **os.environ,
        "COMMANDS": '[["sh", "-c", "echo redirected"]]',
        "FULLTILT_PROTECTION": "user-namespace",
    }
    done = subprocess.run(
        [*within, sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"the right cannot be taken away here: {done.stderr.decode()[-200:]}")
    answer = json.loads(done.stdout)
    assert answer["means"] == "redirected"
    assert answer["reason"].startswith("making a user namespace: ")
    assert answer["reason"].endswith("(user.max_user_namespaces = 0)")
    assert answer["runs"] == [[0, "redirected\n"]]
    assert not answer["left"]


@pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid() != 0, reason="needs root, to mount an overlay")
def test_scratch_moves_away_from_an_overlay_which_cannot_hold_layers(tmp_path):
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    mount = 'mount -t overlay o -o lowerdir=lower,upperdir=upper,workdir=work merged && cd merged && exec "$@"'
    environment = {**os.environ, "COMMANDS": '[["sh", "-c", "echo x > here"]]', "TMPDIR": str(tmp_path / "merged")}
    within = ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, "-c", PROGRAM]
    done = subprocess.run(within, cwd=tmp_path, env=environment, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no overlay can be mounted here: {done.stderr.decode()[-200:]}")
    answer = json.loads(done.stdout)
    if answer["means"] == "redirected":
        assert answer["reason"].endswith("point TMPDIR at a mounted disk")
    assert os.listdir(tmp_path / "upper") == ([] if answer["means"] == "overlay" else ["here"])

"""What the command line offers, frozen: a change here is a change for users."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fulltilt import __version__

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = {
    "tune": {
        *("--budget", "--out", "--only", "--hang-timeout", "--json", "--quiet", "--help"),
        *("--verify", "--steps", "--runs", "--margin", "--seed"),
    },
    "run": {"--recipe", "--help"},
    "compare": {"--a", "--b", "--budget", "--pairs", "--out", "--hang-timeout", "--json", "--quiet", "--help"},
    "techniques": {"--json", "--help"},
    "report": {"--json", "--help"},
    "demo": {"--budget", "--out", "--help"},
}


def fulltilt(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "fulltilt", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"COLUMNS": "200"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_verbs_are_these():
    text = fulltilt("--help")
    assert set(re.findall(r"^  (\w+)  ", text, flags=re.MULTILINE)) == set(OPTIONS)


@pytest.mark.parametrize("verb", OPTIONS)
def test_every_verb_says_what_it_does_with_an_example(verb):
    text = fulltilt(verb, "--help")
    assert f"Example: fulltilt {verb}" in text
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text.split("Options:")[1])) - {"--lr"} == OPTIONS[verb]


def test_every_verb_stands_in_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for verb in OPTIONS:
        assert f"fulltilt {verb}" in readme


def test_help_does_not_load_what_it_does_not_need():
    program = (
        "import sys\nfrom fulltilt.cli import main\nsys.argv = ['fulltilt', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'scipy', 'numpy', 'pydantic', 'jinja2', 'yaml', 'psutil'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def test_the_version_is_the_packages():
    assert fulltilt("--version") == f"fulltilt {__version__}\n"


def test_the_files_that_the_readme_recommends_exist():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    paths = re.findall(r"`(src/[\w/.]+)`", readme) + re.findall(r"\]\((docs/[\w.]+)\)", readme)
    assert len(paths) >= 12
    missing = [path for path in paths if "*" not in path and not (ROOT / path).exists()]
    assert missing == []

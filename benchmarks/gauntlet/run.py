"""Tunes public training scripts, unmodified, and renders docs/gauntlet.md.

    python benchmarks/gauntlet/run.py CHECKOUTS --python VENV/bin/python [--vision-python VENV/bin/python]

CHECKOUTS is a folder with the repositories of scripts.json checked out at their commits, and the data that their
READMEs name. Scripts are run one after another, each with its budget; one that has a result already is not run
again. `--render` only writes the table from what is there.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PYTHONS = ("{python}", "{vision_python}")
TUNE = (sys.executable, "-m", "fulltilt", "tune", "--quiet")
TABLE = HERE.parent.parent / "docs" / "gauntlet.md"


def main() -> None:
    arguments = parse_arguments()
    scripts = json.loads((HERE / "scripts.json").read_text(encoding="utf-8"))
    results = arguments.results.resolve()
    for script in scripts:
        wanted = not arguments.only or script["name"] in arguments.only
        if wanted and not arguments.render and not (results / script["name"] / "result.json").exists():
            tune(script, arguments, results)
    TABLE.write_text(render(scripts, results), encoding="utf-8")
    print(TABLE)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--vision-python", type=Path, help="an interpreter with torchvision")
    parser.add_argument("--results", type=Path, default=Path(".fulltilt/gauntlet"))
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--budget", help="instead of each script's own")
    parser.add_argument("--render", action="store_true")
    return parser.parse_args()


def tune(script: dict[str, Any], arguments: argparse.Namespace, results: Path) -> None:
    """One `fulltilt tune`, as a user would start it in the script's folder."""
    out = results / script["name"]
    scratch = results / "scratch" / script["name"]
    scratch.mkdir(parents=True, exist_ok=True)
    places = {
        "checkouts": arguments.checkouts.resolve(),
        "scratch": scratch,
        "python": arguments.python.absolute(),
        "bin": arguments.python.absolute().parent,
        "vision_python": (arguments.vision_python or arguments.python).absolute(),
        "vision_bin": (arguments.vision_python or arguments.python).absolute().parent,
    }
    command = [word.format(**places) for word in script["command"]]
    environment = {name: value.format(**places) for name, value in script["environment"].items()}
    begun = time.monotonic()
    done = subprocess.run(
        [*TUNE, "--budget", arguments.budget or script["budget"], "--out", str(out), "--", *command],
        cwd=arguments.checkouts / script["folder"],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    out.mkdir(parents=True, exist_ok=True)
    (out / "terminal.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    print(f"{script['name']}: exit {done.returncode} in {time.monotonic() - begun:.0f} s", flush=True)


def render(scripts: list[dict[str, Any]], results: Path) -> str:
    """The table, in Markdown."""
    rows = [row_of(script, results / script["name"]) for script in scripts]
    machine = next(
        (machine_of(results / script["name"]) for script in scripts if machine_of(results / script["name"])), ""
    )
    head = (HERE / "head.md").read_text(encoding="utf-8")
    lines = [
        head.rstrip(),
        "",
        f"Measured on: {machine}.",
        "",
        "| script | kind | step | speed-up [95 %] | numbers | recipe | budget, used |",
        "|---|---|---|---|---|---|---|",
        *[row for row in rows if row],
        "",
        "Commands, repositories and commits:",
        "",
        *[f"- {s['name']}: {s['repository']} at `{s['commit'][:10]}`, `{command_of(s)}`" for s in scripts],
    ]
    return "\n".join(lines) + "\n"


def command_of(script: dict[str, Any]) -> str:
    return shlex.join(
        Path(word).name if word.startswith(("{python", "{vision")) else word for word in script["command"]
    )


def row_of(script: dict[str, Any], out: Path) -> str:
    """One line of the table; empty for a script that was not run."""
    try:
        result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    except OSError:
        if not (out / "terminal.txt").exists():
            return ""
        said = (out / "terminal.txt").read_text(encoding="utf-8").strip().replace("\n", " ")[-200:]
        return f"| {script['name']} | {script['kind']} | | failed: {said} | | | |"
    speedup, techniques = result["speedup"], result["recipe"]["techniques"]
    gain = f"{speedup['median']:.2f}x [{speedup['low']:.2f}, {speedup['high']:.2f}]" if techniques else "nothing helps"
    kept = f"kept ({result['verdict']['class']})" if techniques else "untouched"
    recipe = " + ".join(describe(choice) for choice in techniques) or "empty"
    step = result["baseline_step_seconds"] * 1000
    return (
        f"| {script['name']} | {script['kind']} | {step:.3g} ms | {gain} | {kept} | {recipe} "
        f"| {script['budget']}, {result['wall_seconds']:.0f} s |"
    )


def describe(choice: dict[str, Any]) -> str:
    options = ", ".join(f"{key}={value}" for key, value in choice["options"].items())
    return f"{choice['name']}({options})" if options else str(choice["name"])


def machine_of(out: Path) -> str:
    try:
        machine = json.loads((out / "result.json").read_text(encoding="utf-8"))["machine"]
    except OSError:
        return ""
    return f"{machine['cpu']} ({machine['cpu_capability']}), {machine['num_cpus']} cores, torch {machine['torch']}"


if __name__ == "__main__":
    main()

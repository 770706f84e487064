"""A/A: nothing against nothing. How often does `fulltilt compare` see a difference that is not there?

    python benchmarks/aa.py [--times 20] [--pairs 3] [--no-load]

Every comparison is a process of its own of the command line, on a script of about 30 ms a step, while another process
keeps one core busy. Prints a line for each comparison and a table in Markdown at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from fulltilt.hardware.machine import this_machine

SCRIPT = Path(__file__).with_name("step_30ms.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--budget", default="2m")
    parser.add_argument("--no-load", action="store_true", help="leave the other core alone")
    arguments = parser.parse_args()
    begun = time.monotonic()
    with contextlib.nullcontext() if arguments.no_load else one_core_busy():
        intervals = [compare(arguments.pairs, arguments.budget) for _ in range(arguments.times)]
    report(intervals, arguments, time.monotonic() - begun)


def compare(pairs: int, budget: str) -> dict[str, float]:
    """The interval of one comparison of the script with itself."""
    command = [sys.executable, "-m", "fulltilt", "compare", "--json", "--pairs", str(pairs), "--budget", budget]
    done = subprocess.run(
        [*command, "--", sys.executable, str(SCRIPT)],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    interval: dict[str, float] = json.loads(done.stdout)["speedup"]
    print(f"{interval['median']:.4f} [{interval['low']:.4f}, {interval['high']:.4f}]", flush=True)
    return interval


@contextlib.contextmanager
def one_core_busy() -> Iterator[None]:
    process = multiprocessing.Process(target=spin, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def spin() -> None:
    while True:
        sum(range(10_000))


def report(intervals: list[dict[str, float]], arguments: argparse.Namespace, seconds: float) -> None:
    different = [i for i in intervals if i["low"] > 1.0 or i["high"] < 1.0]
    widths = [i["high"] / i["low"] - 1.0 for i in intervals]
    errors = [abs(i["median"] - 1.0) for i in intervals]
    print()
    print(f"Machine: {this_machine().cpu}; Python {platform.python_version()}")
    print("| comparisons | other core | pairs | called different | median error | worst error | median width | time |")
    print("|---|---|---|---|---|---|---|---|")
    print(
        f"| {len(intervals)} | {'idle' if arguments.no_load else 'busy'} | {arguments.pairs} | {len(different)} "
        f"| {statistics.median(errors):.2%} | {max(errors):.2%} | {statistics.median(widths):.1%} | {seconds:.0f} s |"
    )


if __name__ == "__main__":
    main()

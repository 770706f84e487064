"""Prints how often `compare_pairs` is wrong, and how often it finds a real gain, on simulated pairs of known truth.

    python benchmarks/simulate_intervals.py [--simulations 1000] [--seed 0]

No training process is started. The noise is that of `tests/simulated_pairs.py`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy

from fulltilt.measure.comparison import compare_pairs
from fulltilt.records.journal import SpeedupInterval

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import simulated_pairs

SHAPES = ((1, 8), (1, 16), (2, 8), (2, 16), (3, 8), (3, 16))
"""(pairs, blocks of each)."""
SPEEDUPS = (1.05, 1.1, 1.2, 1.3)
NOISES = {"blocks of 8 %": 0.0, "the same with spikes": 0.2}


def main() -> None:
    arguments = parse_arguments()
    found = " | ".join(f"{speedup}x found" for speedup in SPEEDUPS)
    print(f"| noise | pairs x blocks | A/A called different | {found} |")
    print("|---|---|---|" + "---|" * len(SPEEDUPS))
    for noise, spikes in NOISES.items():
        for shape in SHAPES:
            print(f"| {noise} | {shape[0]} x {shape[1]} | {rates(shape, spikes, arguments)} |", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def rates(shape: tuple[int, int], spikes: float, arguments: argparse.Namespace) -> str:
    """Share of A/A comparisons called different, then the share of each gain whose interval lies above 1."""
    dice = numpy.random.default_rng([arguments.seed, *shape])
    rounds = range(arguments.simulations)
    same = [compare(dice, shape, 1.0, spikes) for _ in rounds]
    cells = [f"{numpy.mean([interval.low > 1 or interval.high < 1 for interval in same]):.1%}"]
    for speedup in SPEEDUPS:
        cells.append(f"{numpy.mean([compare(dice, shape, speedup, spikes).low > 1 for _ in rounds]):.0%}")
    return " | ".join(cell.replace("%", " %") for cell in cells)


def compare(dice: numpy.random.Generator, shape: tuple[int, int], speedup: float, spikes: float) -> SpeedupInterval:
    num_pairs, num_blocks = shape
    return compare_pairs(
        [
            simulated_pairs.simulated_pair(dice, speedup=speedup, num_blocks=num_blocks, spikes=spikes)
            for _ in range(num_pairs)
        ]
    )


if __name__ == "__main__":
    main()

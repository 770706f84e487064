"""What the tap costs a training step in production: a tiny MLP on one thread, with and without `fulltilt run`.

    python benchmarks/tap_overhead.py [--rounds 10] [--steps 4000]

Processes alternate; each reports the median time of its steps after warm-up. The cost is the difference of the medians
of a pair, with a t interval over the pairs. Three recipes: none, one whose techniques leave no seam behind in a step,
and one with a wrapper around every call of the model.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
from scipy import stats

from fulltilt.config.recipe import parse_recipe
from fulltilt.records.codec import to_json
from fulltilt.records.request import Request
from fulltilt.techniques import all_specs
from fulltilt.trials.environment import worker_environment

SCRIPT = """
import json, sys, time, statistics, torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(32, 16), torch.randn(32, 1)
seconds = []
for step in range(int(sys.argv[1])):
    start = time.perf_counter()
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    seconds.append(time.perf_counter() - start)
print(json.dumps(statistics.median(seconds[len(seconds) // 4:])))
"""
RECIPES = {
    "empty recipe": "",
    "gc_freeze": "techniques: {gc_freeze: {}}",
    "gc_freeze, channels_last (no effect here)": "techniques: {gc_freeze: {}, channels_last: {}}",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=4000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, recipe in RECIPES.items():
            environment = environment_for(recipe, Path(folder) / "request.json")
            pairs = [one_pair(environment, arguments.steps, tapped_first=bool(i % 2)) for i in range(arguments.rounds)]
            print(name, "|", summary(pairs))


def environment_for(recipe: str, request_path: Path) -> dict[str, str]:
    """The environment in which the tap applies `recipe`."""
    options_of = {spec.name: spec.options for spec in all_specs()}
    request_path.write_text(to_json(Request(techniques=parse_recipe(recipe, options_of).techniques)))
    return worker_environment(os.environ, request_path)


def one_pair(tapped: dict[str, str], steps: int, *, tapped_first: bool) -> tuple[float, float]:
    """Seconds a step without and with the tap."""
    if tapped_first:
        second = median_step(tapped, steps)
        return median_step(dict(os.environ), steps), second
    first = median_step(dict(os.environ), steps)
    return first, median_step(tapped, steps)


def median_step(environment: dict[str, str], steps: int) -> float:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(steps)], env=environment, capture_output=True, text=True, check=True
    )
    return float(json.loads(done.stdout))


def summary(pairs: list[tuple[float, float]]) -> str:
    costs = numpy.array([(tapped - plain) * 1e6 for plain, tapped in pairs])
    half = stats.t.ppf(0.975, len(costs) - 1) * costs.std(ddof=1) / len(costs) ** 0.5
    plain = numpy.median([plain for plain, _ in pairs]) * 1e6
    return (
        f"plain step {plain:.1f} us | tap {costs.mean():+.1f} us a step, "
        f"95 % [{costs.mean() - half:+.1f}, {costs.mean() + half:+.1f}] | n = {len(costs)} pairs of processes"
    )


if __name__ == "__main__":
    main()

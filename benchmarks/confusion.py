"""The gallery of faults and harmless changes, judged: the confusion table of docs/verdict.md, change by change.

python benchmarks/confusion.py [--seeds 5] [--output docs/confusion.md]

Every training is a real one of `tests/faults/scripts`, under the real tap; every verdict is the product's own. Beside
the verdict in the class that a change claims stands what a wider one would say: the envelope of bfloat16, and that of
other random draws alone.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from faults.change import BFLOAT16, FAULTS, HARMLESS, Change  # noqa: E402
from faults.workbench import Workbench, verdicts_of  # noqa: E402
from fulltilt.records.journal import VerdictRecord  # noqa: E402
from fulltilt.records.words import Numerics  # noqa: E402

Verdicts = tuple[VerdictRecord, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One change over all seeds."""

    change: Change
    claimed: Sequence[Verdicts]
    in_bfloat16: Sequence[Verdicts]
    among_other_draws: Sequence[Verdicts]


def main() -> None:
    import faults.gallery  # noqa: F401

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "confusion.md")
    arguments = parser.parse_args()
    begun = time.monotonic()
    workbench = Workbench()
    try:
        faults_seen = judged(workbench, FAULTS.values(), range(arguments.seeds))
        harmless_seen = judged(workbench, HARMLESS.values(), range(arguments.seeds))
    finally:
        workbench.close()
    text = page(faults_seen, harmless_seen, arguments.seeds, time.monotonic() - begun)
    arguments.output.write_text(text, encoding="utf-8")
    print(f"{arguments.output} is written")


def judged(workbench: Workbench, changes: Iterable[Change], seeds: Iterable[int]) -> list[Row]:
    """Each change with each seed, some at a time."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:

        def over_seeds(change: Change, *, examined: bool = False) -> list[concurrent.futures.Future[Verdicts]]:
            return [pool.submit(verdicts_of, workbench, change, seed, examined=examined) for seed in seeds]

        asked = [(change, over_seeds(change, examined=True), *map(over_seeds, wider(change))) for change in changes]
        rows = []
        for number, (change, *futures) in enumerate(asked, 1):
            claimed, in_bfloat16, among_draws = ([future.result() for future in column] for column in futures)
            rows.append(Row(change=change, claimed=claimed, in_bfloat16=in_bfloat16, among_other_draws=among_draws))
            print(f"\r{number} of {len(asked)}: {change.name:50}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rows


def wider(change: Change) -> tuple[Change, Change]:
    """The change in the wider classes."""
    widest = max(change.rounding, BFLOAT16)
    return (
        dataclasses.replace(change, numerics=Numerics.ROUNDING, rounding=widest),
        dataclasses.replace(change, numerics=Numerics.ROUNDING, changes_draws=True),
    )


def page(faults_seen: list[Row], harmless_seen: list[Row], num_seeds: int, seconds: float) -> str:
    refused = sum(map(is_refused, (verdicts for row in faults_seen for verdicts in row.claimed)))
    kept = sum(not is_refused(verdicts) for row in harmless_seen for verdicts in row.claimed)
    lines = [
        "# The confusion table, change by change",
        "",
        f"Written by `python benchmarks/confusion.py --seeds {num_seeds}`: torch {version('torch')}, Python "
        f"{platform.python_version()}, {platform.machine()} CPU, one thread, {seconds / 60:.0f} minutes. "
        "What is judged is described in [verdict.md](verdict.md); the changes are those of `tests/faults`.",
        "",
        f"**{refused} of {len(faults_seen) * num_seeds} faults refused, {kept} of {len(harmless_seen) * num_seeds} "
        "harmless changes kept**, in the class that each claims.",
        "",
        "The last two columns say how fine the wider classes see: the same change claimed by a technique of bfloat16's "
        "rounding, and by one that draws other random numbers and is judged among other draws *alone* (a trial of the "
        "search does that; before a recipe is given it is judged with the script's own draws, too).",
        "",
        "## Faults: refused",
        "",
        "| fault | what is wrong | script | claims | refused | first evidence | bfloat16 | other draws alone |",
        "|---|---|---|---|---|---|---|---|",
        *(line(row, is_refused) for row in faults_seen),
        "",
        "## Harmless changes: kept",
        "",
        "| change | what it does | script | claims | kept | | bfloat16 | other draws alone |",
        "|---|---|---|---|---|---|---|---|",
        *(line(row, lambda verdicts: not is_refused(verdicts)) for row in harmless_seen),
    ]
    return "\n".join(lines) + "\n"


def line(row: Row, count: Callable[[Verdicts], bool]) -> str:
    change = row.change
    columns = [
        f"`{change.name}`",
        change.summary.replace("|", "\\|"),
        change.script,
        claim(change),
        ratio(row.claimed, count),
        first_evidence(row.claimed),
        ratio(row.in_bfloat16, count),
        ratio(row.among_other_draws, count),
    ]
    return f"| {' | '.join(columns)} |"


def claim(change: Change) -> str:
    """Class and rounding: "ROUNDING 2^-8, other draws"."""
    rounding = f" 2^{change.rounding.hex().partition('p')[2]}" if change.numerics is Numerics.ROUNDING else ""
    return f"{change.numerics.value}{rounding}" + (", other draws" if change.changes_draws else "")


def ratio(found: Sequence[Verdicts], count: Callable[[Verdicts], bool]) -> str:
    return f"{sum(map(count, found))}/{len(found)}"


def is_refused(verdicts: Verdicts) -> bool:
    return not all(verdict.kept for verdict in verdicts)


def first_evidence(found: Sequence[Verdicts]) -> str:
    """The kinds of evidence that speak first, most frequent first."""
    kinds = Counter(
        next((verdict.broken[0].partition(":")[0] for verdict in verdicts if verdict.broken), "") for verdicts in found
    )
    return ", ".join(kind for kind, _ in kinds.most_common(2) if kind)


if __name__ == "__main__":
    main()

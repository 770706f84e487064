"""What a candidate is measured against: runs of the untouched command that differ only as much as is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fulltilt.numerics.thresholds import (
    EACH_FACTOR,
    EXACT_FLOOR,
    FACTOR,
    FLOAT32_ROUNDING,
    FLOAT64_ROUNDING,
    LOSS_FLOOR,
    ROUNDING_FLOOR,
    SAMPLING_TOTAL_FACTOR,
    TOTAL_FACTOR,
    UPDATE_FLOOR,
)
from fulltilt.records.record import Evidence
from fulltilt.records.words import Numerics


@dataclass(frozen=True, slots=True)
class Observation:
    """One sentence of a verdict."""

    text: str
    broken: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Envelope:
    """The runs, and how many times their distance from the baseline is allowed, plus relative floors."""

    name: str
    """As sentences call it: "rounding envelope"."""
    runs: tuple[Evidence, ...]
    steady_runs: tuple[Evidence, ...]
    """Those of the runs with the baseline's own random draws."""
    factor: float
    each_factor: float
    total_factor: float
    floor: float
    update_floor: float
    loss_floor: float

    def largest(self, measure: Callable[[Evidence], float]) -> float:
        """The largest finite value of `measure` over the runs; 0 when there is none."""
        return max((value for value in map(measure, self.runs) if math.isfinite(value)), default=0.0)


def envelope_of(
    numerics: Numerics,
    *,
    repeat: Sequence[Evidence],
    rounding: Sequence[Evidence],
    sampling: Sequence[Evidence],
    changes_draws: bool,
    noisy: bool,
    rounding_unit: float = FLOAT32_ROUNDING,
) -> Envelope:
    """The envelope for a class: each wider one holds the narrower ones.

    With `changes_draws` the sampling runs count even when the candidate left the random generators as the baseline
    did: a compiled dropout on CUDA can draw other numbers and advance the generator equally far. `rounding_unit` is
    one rounding of the precision that the script trains in.

    Raises:
        ValueError: when runs that the class needs are missing.
    """
    with_rounding = numerics is not Numerics.EXACT or noisy
    _expect(repeat, "repeat", numerics)
    if numerics is Numerics.ROUNDING:
        _expect(rounding, "rounding", numerics)
    if changes_draws and numerics is not Numerics.LOSSY:
        _expect(sampling, "sampling", numerics)
    steady = (*repeat, *(rounding if with_rounding else ()))
    others = tuple(sampling) if changes_draws else ()
    units = rounding_unit / FLOAT32_ROUNDING
    exact = numerics is Numerics.EXACT and not others and not (noisy and rounding)
    return Envelope(
        name="sampling envelope" if others else "rounding envelope" if len(steady) > len(repeat) else "repeated run",
        runs=(*steady, *others),
        steady_runs=steady,
        factor=FACTOR,
        each_factor=EACH_FACTOR,
        total_factor=SAMPLING_TOTAL_FACTOR if others else TOTAL_FACTOR,
        floor=EXACT_FLOOR if exact else ROUNDING_FLOOR * units,
        update_floor=EXACT_FLOOR if exact else UPDATE_FLOOR * units,
        loss_floor=EXACT_FLOOR if exact else LOSS_FLOOR * units,
    )


def rounding_unit(baseline: Evidence) -> float:
    """One rounding of what the script trains: of float64 where all its parameters are, else of float32."""
    dtypes = {known.dtype for known in baseline.parameters.values()}
    return FLOAT64_ROUNDING if dtypes and dtypes <= {"float64", "complex128"} else FLOAT32_ROUNDING


def _expect(runs: Sequence[Evidence], name: str, numerics: Numerics) -> None:
    if not runs:
        raise ValueError(f"a verdict of this kind (class {numerics}) needs {name} runs, and none were given")

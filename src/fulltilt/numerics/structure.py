"""What must be the same whatever the class: names, dtypes, shapes, ties, counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fulltilt.numerics.envelope import Observation
from fulltilt.records.record import Evidence
from fulltilt.records.words import Numerics

_IMPLEMENTATION = ("foreach", "fused", "capturable", "step")
"""Optimizer entries that say how it computes, or whose kind follows from that."""


def check_structure(
    candidate: Evidence, baseline: Evidence, repeat: Sequence[Evidence], numerics: Numerics
) -> Iterator[Observation]:
    """One observation for each kind of structure."""
    yield _check_num_steps(candidate, baseline)
    yield _check_mapping("state_dict", candidate.state_dict, baseline.state_dict)
    yield _check_mapping("parameters", _parameter_kinds(candidate), _parameter_kinds(baseline))
    yield _check_ties(candidate, baseline)
    yield _check_gradients(candidate, baseline)
    yield _check_optimizer_state(candidate, baseline, repeat, numerics)
    yield _check_executed_steps(candidate, baseline)
    yield _check_num_losses(candidate, baseline)
    if all(run.loaders == baseline.loaders for run in repeat):
        yield _check_mapping("data loaders", candidate.loaders, baseline.loaders, "with as many batches and samples")


def _check_num_steps(candidate: Evidence, baseline: Evidence) -> Observation:
    if baseline.num_steps == 0:
        return Observation("steps: the baseline recorded no training step, so there is nothing to judge by", True)
    if candidate.num_steps != baseline.num_steps:
        how = "ended after" if candidate.num_steps < baseline.num_steps else "recorded"
        return Observation(f"steps: it {how} {candidate.num_steps} steps, the baseline had {baseline.num_steps}", True)
    return Observation(f"steps: {candidate.num_steps} recorded, as in the baseline")


def _check_mapping(
    name: str, candidate: Mapping[str, str], baseline: Mapping[str, str], what: str = "keys, dtypes and shapes"
) -> Observation:
    faults = [*_key_faults(candidate, baseline), *_value_faults(candidate, baseline)]
    if faults:
        return Observation(f"{name}: {_first(faults)}", True)
    return Observation(f"{name}: the same {len(baseline)} {what} as in the baseline")


def _key_faults(candidate: Mapping[str, str], baseline: Mapping[str, str]) -> list[str]:
    return [f"lacks {key}" for key in baseline if key not in candidate] + [
        f"has {key}, which the baseline has not" for key in candidate if key not in baseline
    ]


def _value_faults(candidate: Mapping[str, str], baseline: Mapping[str, str]) -> list[str]:
    return [
        f"{key} is {candidate[key]}, in the baseline {kind}"
        for key, kind in baseline.items()
        if key in candidate and candidate[key] != kind
    ]


def _parameter_kinds(evidence: Evidence) -> dict[str, str]:
    return {name: f"{known.dtype} {list(known.shape)}" for name, known in evidence.parameters.items()}


def _check_ties(candidate: Evidence, baseline: Evidence) -> Observation:
    ties = {frozenset(names) for names in candidate.aliases}, {frozenset(names) for names in baseline.aliases}
    lost = [f"{' and '.join(sorted(names))} no longer share their storage" for names in ties[1] - ties[0]]
    new = [f"{' and '.join(sorted(names))} share their storage now" for names in ties[0] - ties[1]]
    if lost or new:
        return Observation(f"tied weights: {_first(sorted(lost) + sorted(new))}", True)
    return Observation(f"tied weights: the same {len(ties[1])} as in the baseline")


def _check_gradients(candidate: Evidence, baseline: Evidence) -> Observation:
    has, had = _with_gradient(candidate), _with_gradient(baseline)
    faults = [f"{name} gets no gradient" for name in had if name not in has]
    faults += [f"{name} gets a gradient, in the baseline it gets none" for name in has if name not in had]
    if faults:
        return Observation(f"parameters with gradients: {_first(faults)}", True)
    return Observation(f"parameters with gradients: the same {len(had)} as in the baseline")


def _with_gradient(evidence: Evidence) -> dict[str, None]:
    return {name: None for name, known in evidence.parameters.items() if known.first_gradient is not None}


def _check_optimizer_state(
    candidate: Evidence, baseline: Evidence, repeat: Sequence[Evidence], numerics: Numerics
) -> Observation:
    if any(_key_faults(run.optimizer_state, baseline.optimizer_state) for run in repeat):
        return Observation("optimizer state: cannot be judged, its keys differ between two runs of the same command")
    faults = _key_faults(candidate.optimizer_state, baseline.optimizer_state)
    if numerics is not Numerics.LOSSY:
        fixed = {key: kind for key, kind in baseline.optimizer_state.items() if _is_fixed(key, kind, repeat)}
        faults += _value_faults(candidate.optimizer_state, fixed)
    if faults:
        return Observation(f"optimizer state: {_first(faults)}", True)
    return Observation(f"optimizer state: the same {len(baseline.optimizer_state)} entries as in the baseline")


def _is_fixed(key: str, kind: str, repeat: Sequence[Evidence]) -> bool:
    return key.rpartition(".")[2] not in _IMPLEMENTATION and all(run.optimizer_state.get(key) == kind for run in repeat)


def _check_executed_steps(candidate: Evidence, baseline: Evidence) -> Observation:
    has, had = candidate.executed_steps, baseline.executed_steps
    faults = [
        f"{name} executed {has.get(name, 0)}, in the baseline {had.get(name, 0)}"
        for name in had | has
        if has.get(name, 0) != had.get(name, 0)
    ]
    if faults:
        return Observation(f"optimizer steps: {_first(faults)}", True)
    counts = ", ".join(f"{name} {count}" for name, count in had.items())
    return Observation(f"optimizer steps: as many executed as in the baseline ({counts or 'no optimizer'})")


def _check_num_losses(candidate: Evidence, baseline: Evidence) -> Observation:
    for step, (has, had) in enumerate(zip(candidate.losses, baseline.losses, strict=False), 1):
        if len(has) != len(had):
            return Observation(
                f"number of losses: {len(has)} backward calls in step {step}, in the baseline {len(had)}", True
            )
    return Observation("number of losses: as many per step as in the baseline")


def _first(faults: Sequence[str]) -> str:
    return faults[0] if len(faults) == 1 else f"{faults[0]} (and {len(faults) - 1} more)"

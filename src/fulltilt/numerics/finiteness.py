"""Values that are not finite where the baseline's are."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fulltilt.numerics.distance import is_finite
from fulltilt.numerics.envelope import Observation
from fulltilt.records.record import Evidence


def check_finite(candidate: Evidence, baseline: Evidence) -> Observation:
    """Broken when anything of the candidate is nan or inf and the same thing of the baseline is not."""
    allowed = set(_not_finite(baseline))
    found = [place for place in _not_finite(candidate) if place not in allowed]
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return Observation(f"finite values: {found[0]} is not finite, in the baseline it is{more}", True)
    if allowed:
        return Observation(f"finite values: {len(allowed)} values are not finite in the baseline itself; no others are")
    return Observation("finite values: all")


def _not_finite(evidence: Evidence) -> Iterator[str]:
    for step, losses in enumerate(evidence.losses, 1):
        if not all(map(math.isfinite, losses)):
            yield f"the loss of step {step}"
    for step, norm in enumerate(evidence.gradient_norms, 1):
        if not math.isfinite(norm):
            yield f"the gradient norm of step {step}"
    for name, known in evidence.parameters.items():
        if known.first_gradient is not None and not is_finite(known.first_gradient):
            yield f"the first gradient of {name}"
        if known.end is not None and not is_finite(known.end):
            yield f"parameter {name} at the end"
    for name, buffer in evidence.buffers.items():
        if not is_finite(buffer):
            yield f"buffer {name} at the end"

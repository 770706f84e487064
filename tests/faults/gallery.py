"""All changes, by name; importing it fills the two galleries."""

from __future__ import annotations

from typing import Any

import faults.harmless.draws
import faults.harmless.exact
import faults.harmless.rounding
import faults.wrong.attention
import faults.wrong.data
import faults.wrong.gradients
import faults.wrong.loop
import faults.wrong.modules
import faults.wrong.optimizers
import faults.wrong.precision
import faults.wrong.randomness  # noqa: F401
from faults.change import FAULTS, HARMLESS
from fulltilt.technique import Spec
from fulltilt.techniques import spec_of


def find(name: str) -> Spec:
    """The spec of the change of this name, or of the technique."""
    changes = FAULTS | HARMLESS
    return changes[name].spec if name in changes else spec_of(name)


def __getattr__(name: str) -> Any:
    """A change's technique, where its spec says that it is: `faults.gallery:name`."""
    change = (FAULTS | HARMLESS).get(name)
    if change is None:
        raise AttributeError(name)
    return change.technique

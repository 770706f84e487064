"""What a tune has learnt of the command's length and speed, kept on disk: a resumed tune goes on at the same pace."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

from fulltilt.errors import StorageError
from fulltilt.records.codec import CodecError, from_json, to_json, to_plain
from fulltilt.records.request import TechniqueChoice


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Pacing:
    """The numbers."""

    total_steps: int | None = None
    """Training steps of the whole run, where it was seen to end."""
    step_seconds: float = 0.0
    """Of the untouched command."""
    evidence_steps: int = 0
    """Steps over which numbers are recorded; 0 before that is settled."""
    one_at_a_time: bool = False
    """Two copies of the command cannot be alive at once: they fight for a port, or for memory."""
    seconds_to_ready: float = 0.0
    """From the start of the untouched command until its evidence was recorded."""
    excess_seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    """Techniques, as JSON -> what starting under them cost beyond its steps: start-up, compilation, warm-up."""


class Notes:
    """`pacing`, read at construction and written at every change, whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self.pacing = from_json(Pacing, path.read_text(encoding="utf-8"))
        except (OSError, CodecError):
            self.pacing = Pacing()

    def change(self, **numbers: float | int | None) -> None:
        """Set some of the numbers.

        Raises:
            StorageError: they cannot be written.
        """
        self.pacing = dataclasses.replace(self.pacing, **numbers)  # type: ignore[arg-type]
        self._write()

    def note_excess(self, techniques: tuple[TechniqueChoice, ...], seconds: float) -> None:
        """The first start under some techniques is the one that counts: later ones find caches filled."""
        known = self.pacing.excess_seconds
        excess = {_key_of(techniques): seconds, **known}
        self.pacing = dataclasses.replace(self.pacing, excess_seconds=excess)
        self._write()

    def excess_of(self, techniques: tuple[TechniqueChoice, ...]) -> float | None:
        """What starting under these techniques cost; None when it was never done."""
        return self.pacing.excess_seconds.get(_key_of(techniques))

    def _write(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part = self._path.with_name(self._path.name + ".part")
            with part.open("w", encoding="utf-8") as file:
                file.write(to_json(self.pacing))
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._path)
        except OSError as error:
            raise StorageError(
                f"{self._path} cannot be written: {error.strerror or error}",
                hint="Free some space or choose another folder with --out.",
            ) from error


def _key_of(techniques: tuple[TechniqueChoice, ...]) -> str:
    return json.dumps(to_plain(techniques), sort_keys=True)

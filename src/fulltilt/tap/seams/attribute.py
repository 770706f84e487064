"""Replace an attribute of a module or class, and put it back."""

from typing import Any

_MISSING = object()


class Replacement:
    """`owner.name` is `value` until `undo()`; also a context manager, for tests."""

    def __init__(self, owner: Any, name: str, value: Any) -> None:
        self._owner, self._name = owner, name
        self._before = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)

    def undo(self) -> None:
        """Put the attribute back as it was, absent where it was absent. Safe to call twice."""
        if self._before is _MISSING:
            if self._name in vars(self._owner):
                delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)

    def __enter__(self) -> "Replacement":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.undo()

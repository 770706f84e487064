"""fulltilt: find the fastest settings for a PyTorch training script that leave its numbers right.

Importing this package is cheap and never imports torch: it is loaded in the parent, which answers at once, and inside
the user's own process, which must not notice. The verbs are loaded at first use.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["__version__", "compare", "report", "run", "tune", "verify"]

if TYPE_CHECKING:
    from fulltilt.api import compare, report, run, tune, verify


def __getattr__(name: str) -> Any:
    if name in __all__:
        from fulltilt import api

        return getattr(api, name)
    raise AttributeError(f"module 'fulltilt' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)

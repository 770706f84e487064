"""Leaves a stack where the parent finds it: when the process dies of a fatal signal, and when the parent asks.

Both by `faulthandler`, from within the signal handler: no thread (Python 3.12 warns scripts that fork with one), and no
cost until it happens. Forked children write into the file of the process they come from.
"""

import faulthandler
import os

from fulltilt.records.traces import TRACES_FOLDER, where_signal


def install(scratch: str) -> None:
    """Called at the start of every Python process of a trial. Never raises."""
    path = os.path.join(scratch, TRACES_FOLDER, f"{os.getpid()}.txt")
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    except OSError:
        return
    if not faulthandler.is_enabled():  # else the user wants it on standard error (PYTHONFAULTHANDLER)
        faulthandler.enable(descriptor)
    number = where_signal()
    if number is not None:
        faulthandler.register(number, descriptor, all_threads=False)

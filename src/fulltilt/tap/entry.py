"""The worker's way in: called right after the user's process has imported torch."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn

from fulltilt.records.codec import CodecError, from_json
from fulltilt.records.request import Request
from fulltilt.tap.long_run import LongRun
from fulltilt.tap.production import Production
from fulltilt.tap.seams import files
from fulltilt.tap.seams.saving import SavingSeam
from fulltilt.tap.seams.seeds import seed_everything
from fulltilt.tap.session import Session
from fulltilt.tap.trial import Trial
from fulltilt.technique import Spec
from fulltilt.techniques import spec_of


def arm(request_path: str) -> Session | None:
    """Read the request and install what it asks for. Never raises: the user's script goes on whatever happens."""
    try:
        with open(request_path, encoding="utf-8") as file:
            request = from_json(Request, file.read())
        return start(request)
    except (OSError, CodecError) as error:
        print(f"fulltilt: the request {request_path} cannot be read, nothing is applied: {error}", file=sys.stderr)
        return None


def start(request: Request, find: Callable[[str], Spec] = spec_of) -> Session:
    """A session for this process, listening. `find` gives the spec of a technique that the request names."""
    session = Session(request, find)
    if request.trial is None:
        production = Production(session, request.state_file)
        session.start(production)
        atexit.register(production.report)
        return session
    long = request.trial.evidence is not None and request.trial.evidence.whole_curve
    seed = request.trial.evidence.reseed if request.trial.evidence is not None and long else request.trial.seed
    if seed is not None:
        seed_everything(seed)
    trial = LongRun(session, request.trial) if long else Trial(session, request.trial)
    if files.active is not None:
        SavingSeam(files.active)
    session.start(trial)
    atexit.register(trial.process_ends)
    _tell_of_exceptions(trial)
    _tell_of_exits_without_goodbye(trial)
    return session


def _tell_of_exits_without_goodbye(trial: Trial) -> None:
    """Scripts end by `os._exit` where a library hangs at exit; nothing that is registered to run at exit runs then."""
    before = os._exit

    def _exit(status: int) -> NoReturn:
        trial.process_ends()
        before(status)

    os._exit = _exit


def _tell_of_exceptions(trial: Trial) -> None:
    before = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        for _ in range(2):  # torch's signal handler may raise in the midst of it, once, as a loader's worker has died
            with contextlib.suppress(Exception):
                trial.exception_raised(kind, error, trace)
                break
        before(kind, error, trace)

    sys.excepthook = excepthook

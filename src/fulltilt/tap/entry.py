"""The worker's way in: called right after the user's process has imported torch."""

from __future__ import annotations

import atexit
import sys
from types import TracebackType

from fulltilt.records.codec import CodecError, from_json
from fulltilt.records.request import Request
from fulltilt.tap.production import Production
from fulltilt.tap.seams import files
from fulltilt.tap.seams.saving import SavingSeam
from fulltilt.tap.seams.seeds import seed_everything
from fulltilt.tap.session import Session
from fulltilt.tap.trial import Trial


def arm(request_path: str) -> Session | None:
    """Read the request and install what it asks for. Never raises: the user's script goes on whatever happens."""
    try:
        with open(request_path, encoding="utf-8") as file:
            request = from_json(Request, file.read())
        return start(request)
    except (OSError, CodecError) as error:
        print(f"fulltilt: the request {request_path} cannot be read, nothing is applied: {error}", file=sys.stderr)
        return None


def start(request: Request) -> Session:
    """A session for this process, listening."""
    session = Session(request)
    if request.trial is None:
        production = Production(session, request.state_file)
        session.start(production)
        atexit.register(production.report)
        return session
    if request.trial.seed is not None:
        seed_everything(request.trial.seed)
    trial = Trial(session, request.trial)
    if files.active is not None:
        SavingSeam(files.active)
    session.start(trial)
    atexit.register(trial.process_ends)
    _tell_of_exceptions(trial)
    return session


def _tell_of_exceptions(trial: Trial) -> None:
    before = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        trial.exception_raised(kind, error, trace)
        before(kind, error, trace)

    sys.excepthook = excepthook

"""What the processes of a trial leave when they crash, fail or hang: files in one folder of its scratch.

<pid>.txt             stacks: written by faulthandler on a fatal signal, and when the parent asks where it hangs
failure-<pid>.json    a FailureRecord: the exception that nobody caught
"""

import signal

TRACES_FOLDER = "traces"
FAILURE_PREFIX = "failure-"


def where_signal() -> int | None:
    """The signal that asks a process for its stack; None where there are no real-time signals.

    A real-time signal that nothing is known to use: SIGUSR1 and SIGUSR2 belong to the script (cluster launchers send
    them before a job ends).
    """
    last = getattr(signal, "SIGRTMAX", None)
    return None if last is None else int(last) - 3

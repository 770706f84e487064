"""Start-up folder: on PYTHONPATH of the user's command, so that Python imports this file before anything of the user's.

It arms an import hook for torch when a request is present, takes itself off sys.path, and chains to the sitecustomize
that Python would have imported without us. Standard library only, and safe under
any Python 3: older ones are left alone.
"""

import os
import sys


def _arm():
    if "FULLTILT_REQUEST" not in os.environ or sys.version_info < (3, 11):
        return
    import importlib.util

    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    spec = importlib.util.spec_from_file_location(
        "fulltilt.tap.torch_hook", os.path.join(package, "tap", "torch_hook.py")
    )
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    hook.install(package)


def _chain():
    """Import the sitecustomize that stands behind this one on sys.path, under its own name."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None or os.path.dirname(os.path.abspath(spec.origin or "")) == _HERE:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]
_arm()
_chain()

from collections.abc import Iterator

import pytest

from faults.workbench import Workbench


@pytest.fixture(scope="session")
def workbench(request: pytest.FixtureRequest) -> Iterator[Workbench]:
    """Everything that the selected tests will ask for is trained ahead of them, on all cores."""
    bench = Workbench()
    for item in request.session.items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if {"change", "seed"} <= set(parameters):
            bench.judge(parameters["change"], parameters["seed"])
    yield bench
    bench.close()

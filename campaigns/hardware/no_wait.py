"""The planted hidden waits within closed gates, on this machine's driver: ``python -m campaigns.hardware.no_wait``."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from campaigns.driver import Driver
from campaigns.hardware.result import Result
from pytest_cudalink.loader import gates
from tests.planted import expected, hidden_waits


def _watched(function: Callable[[hidden_waits.Hot], None], costs: list[float]) -> list[gates.FoundWait]:
    """Return what a function waits for in its hot path; note the milliseconds that the gates cost."""
    waits = []

    @contextmanager
    def hot() -> Iterator[None]:
        before = time.perf_counter()
        watch = gates.ClosedGates()
        with watch.closed():
            began = time.perf_counter()
            yield
            ended = time.perf_counter()
        costs.append(1000 * (began - before + time.perf_counter() - ended))
        waits.extend(watch.found)

    function(hot)
    return waits


def watched() -> Result:
    """Each hidden wait is found by its call, and each twin is silent."""
    result, costs = Result(), list[float]()
    driver = Driver()
    driver.must("cuInit", 0)
    driver.made("cuDevicePrimaryCtxRetain", 0)  # a GPU takes seconds to make a context for each function
    table = result.table("Hidden waits", "function", "calls that wait", "found", "found in its twin")
    for name, known in expected("hidden_waits").items():
        waits, twin = (_watched(each[name], costs) for each in (hidden_waits.WAITS, hidden_waits.SOUND))
        calls, others = ([wait.call for wait in each] for each in (waits, twin))
        line = next((line for w in waits for line in reversed(w.python_stack) if line.endswith(f" in {name}")), "")
        result.check(f"{name}: found {calls}; expected {[known]}", holds=calls == [known])
        result.check(f"{name}: no line of Python leads to the call", holds=bool(line))
        result.check(f"the twin of {name}: found {others}; expected nothing", holds=not others)
        table.row(name, known, " ".join(calls), " ".join(others))
    figures = result.table("Cost of closed gates", "blocks", "median ms", "largest ms")
    figures.row(len(costs), f"{statistics.median(costs):.2f}", f"{max(costs):.2f}")
    return result


if __name__ == "__main__":
    watched().write()

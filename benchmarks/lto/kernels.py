"""The kernels of the benchmark: their two units, their arguments, and NumPy's results."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BLOCK = 256
#: Blocks of the reduction: eight for each of the 132 multiprocessors of an H100 and an H200.
REDUCTION_BLOCKS = 1056
STENCIL_ROWS = 16
VISITS = 32
TABLE = 1 << 20


@dataclass(frozen=True)
class Problem:
    """One launch: what goes in, what comes out, and what NumPy computes."""

    inputs: list[Any]  # copied to the device before the first launch
    length: int  # number of floats of the output
    scalars: tuple[int, ...]  # follow the pointers to inputs and output
    grid: tuple[int, int]  # blocks in x and y
    expected: Callable[[], Any]  # returns NumPy's result, in double precision
    result: Callable[[Any], Any]  # returns from the output of the device what is compared


@dataclass(frozen=True)
class Kernel:
    """A kernel in one unit, which calls functions of a second unit."""

    name: str  # also the name of the kernel's function
    what: str  # a few words for the page
    calls: str  # how often the functions of the second unit are called
    kernel: str  # the text of the first unit
    functor: str  # that of the second
    sizes: dict[str, int]  # "memory": most data comes from memory; "l2": all of it fits into the L2 cache
    problem: Callable[[int], Problem]  # makes the problem of a size


def single_source(kernel: Kernel) -> str:
    """Return both units as one: the text of the second, then that of the first, unchanged."""
    return kernel.functor + kernel.kernel


def _whole(output: Any) -> Any:
    return output


def _random(count: int, low: float, high: float) -> Any:
    import numpy as np

    return np.random.default_rng(1).uniform(low, high, count).astype(np.float32)


def _sample(n: int) -> Problem:
    import numpy as np

    x = _random(n, -8.0, 8.0)

    def expected() -> Any:
        wide = x.astype(np.float64)
        return np.maximum(wide * wide + 3.0 * wide - 1.0, 0.0)

    return Problem([x], n, (n,), (-(-n // BLOCK), 1), expected, _whole)


def _reduction(n: int) -> Problem:
    import numpy as np

    x = _random(n, -1.0, 1.0)

    def expected() -> Any:
        return np.array([np.square(x, dtype=np.float64).sum()])

    def result(output: Any) -> Any:
        return np.array([output.astype(np.float64).sum()])

    return Problem([x], REDUCTION_BLOCKS, (n,), (REDUCTION_BLOCKS, 1), expected, result)


def _stencil(width: int) -> Problem:
    import numpy as np

    u = _random(width * width, -1.0, 1.0)

    def expected() -> Any:
        wide = u.reshape(width, width).astype(np.float64)
        here = wide[1:-1, 1:-1]
        change = np.zeros_like(here)
        for other in (wide[1:-1, :-2], wide[1:-1, 2:], wide[:-2, 1:-1], wide[2:, 1:-1]):
            difference = other - here
            change += difference / (1.0 + 4.0 * difference * difference)
        after = wide.copy()
        after[1:-1, 1:-1] += 0.2 * change
        return after.ravel()

    return Problem(
        [u], width * width, (width, width), (-(-width // BLOCK), -(-width // STENCIL_ROWS)), expected, _whole
    )


def _gather(rows: int) -> Problem:
    import numpy as np

    table = _random(TABLE, -1.0, 1.0)
    indices = np.random.default_rng(2).integers(0, TABLE, VISITS * rows, dtype=np.int32)

    def expected() -> Any:
        made = np.where(table > 0.0, table.astype(np.float64), -0.5 * table.astype(np.float64))
        total = np.zeros(rows)
        for visit in range(VISITS):
            total += made[indices[visit * rows : (visit + 1) * rows]]
        return total

    return Problem([table, indices], rows, (rows,), (-(-rows // BLOCK), 1), expected, _whole)


def _units(name: str) -> tuple[str, str]:
    kernel, functor = (HERE / f"{name}.{part}.cu" for part in ("kernel", "functor"))
    return kernel.read_text(encoding="utf-8"), functor.read_text(encoding="utf-8")


def _sample_texts() -> dict[str, str]:
    """The texts of the linker's sample, read and not imported: the machine with the GPU may lack what that needs."""
    text = (HERE.parent.parent / "pytest_cudalink" / "linker" / "sample.py").read_text(encoding="utf-8")
    return {
        statement.targets[0].id: statement.value.value
        for statement in ast.parse(text).body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    }


def _kernels() -> dict[str, Kernel]:
    texts = _sample_texts()
    made = (
        Kernel(
            texts["KERNEL"],
            "the sample: y = f(x)",
            "1 for each element",
            texts["MAIN_SOURCE"],
            texts["USER_SOURCE"],
            {"memory": 1 << 26, "l2": 1 << 21},
            _sample,
        ),
        Kernel(
            "reduction",
            "a sum of f(x), with the sum itself a function",
            "2 for each element",
            *_units("reduction"),
            {"memory": 1 << 26, "l2": 1 << 22},
            _reduction,
        ),
        Kernel(
            "stencil",
            "a step of nonlinear diffusion on a grid",
            "4 for each point",
            *_units("stencil"),
            {"memory": 8192, "l2": 2048},
            _stencil,
        ),
        Kernel(
            "gather",
            "a gather whose functor reads the table",
            f"{VISITS} for each row, each with a read",
            *_units("gather"),
            {"memory": 1 << 21, "l2": 1 << 17},
            _gather,
        ),
    )
    return {kernel.name: kernel for kernel in made}


KERNELS = _kernels()

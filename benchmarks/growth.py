"""How a link on nvJitLink grows: with the number of inputs, and with their size, compared with the calls made directly.

``nox -s bench`` runs it. It prints the exponent of the power law that fits the upper half of each series, by the first
quartiles, which a busy machine disturbs least: 1 means linear. ``--svg PATH`` draws the series with matplotlib, which
makes ``docs/images/growth.svg``::

    python benchmarks/growth.py --svg docs/images/growth.svg
"""

from __future__ import annotations

import ctypes
import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import measure
from linker import direct, ours

from pytest_cudalink import probes
from pytest_cudalink.linker import LinkerOptions, ObjectCode, Program, ProgramOptions

ARCH = "sm_90"
#: How much larger the exponent of ours may be than that of the direct calls, or than 1.
LIMIT = 1.1
COUNTS = (1, 3, 10, 30, 100, 300, 1000)
SIZES = tuple(1024 * 4**power for power in range(8))  # 1 KiB to 16 MiB
#: Bytes of a cubin without data: sizes below are not measured for cubins.
SMALLEST_CUBIN = 4096
DIRECT, OURS, OURS_NEW = "libnvJitLink directly", "ours", "ours, new inputs"
COLOURS = {DIRECT: "#555555", OURS: "#1f77b4", OURS_NEW: "#d62728"}

FUNCTION = 'extern "C" __device__ int f_0000(int x) { return x * 3 + 1; }\n'
KERNEL = 'extern "C" __global__ void kernel(int* x) { x[0] += 1; }\n'
DATA = 'extern "C" __device__ unsigned char data[%d] = {1};\n' + KERNEL


@dataclass(frozen=True)
class Series:
    """Links that differ in one quantity."""

    name: str
    unit: str
    sizes: Sequence[int]  # the quantity, in units
    make: Callable[[int], list[ObjectCode]]  # returns the inputs for a quantity


def compiled(source: str, kind: Any) -> ObjectCode:
    """Compile a relocatable unit."""
    options = ProgramOptions(name="growth.cu", arch=ARCH, relocatable_device_code=True)
    with Program(source, "c++", options) as program:
        return program.compile(kind)


def many_cubins(count: int) -> list[ObjectCode]:
    """Return a number of small cubins, each with another function: the same image with another name in it."""
    image = compiled(FUNCTION, "cubin").code
    codes = [
        ObjectCode.from_cubin(image.replace(b"f_0000", f"f_{n:04}".encode()), name=f"{n}") for n in range(1, count)
    ]
    return [compiled(KERNEL, "cubin"), *codes]


def large_cubin(size: int) -> list[ObjectCode]:
    """Return one cubin of about a size, most of it data."""
    empty = len(compiled(DATA % 1, "cubin").code)
    return [compiled(DATA % max(1, size - empty), "cubin")]


def large_ptx(size: int) -> list[ObjectCode]:
    """Return one PTX module of about a size, most of it comments."""
    text = compiled(KERNEL, "ptx").code.rstrip(b"\0")
    line = b"// a comment, as generators of PTX write them for each line of their own source\n"
    return [ObjectCode.from_ptx(text + line * ((size - len(text)) // len(line)) + b"\0", name="large.ptx")]


SERIES = (
    Series("Number of inputs, cubins", "inputs", COUNTS, many_cubins),
    Series("Size of the input, cubin", "bytes", [size for size in SIZES if size > SMALLEST_CUBIN], large_cubin),
    Series("Size of the input, PTX", "bytes", SIZES, large_ptx),
)


def again(codes: list[ObjectCode]) -> list[ObjectCode]:
    """Return new object codes of the same bytes, which nothing is known about yet."""
    make = {"cubin": ObjectCode.from_cubin, "ptx": ObjectCode.from_ptx}
    return [make[code.code_type](code.code, name=code.name) for code in codes]


def points(series: Series, rounds: int) -> tuple[list[int], dict[str, list[list[float]]]]:
    """Measure a series: its quantities, and by row the seconds of all rounds at each of them."""
    library = ctypes.CDLL(probes.nvjitlink().path)
    options = LinkerOptions(arch=ARCH)
    seconds: dict[str, list[list[float]]] = {DIRECT: [], OURS: [], OURS_NEW: []}
    quantities = []
    for size in series.sizes:
        codes = series.make(size)
        quantities.append(len(codes) if series.unit == "inputs" else sum(len(code.code) for code in codes))
        plain = [(code.code, code.name.encode()) for code in codes]
        rows: dict[str, Callable[[], object]] = {
            DIRECT: partial(direct, library, codes[0].code_type, plain, [f"-arch={ARCH}".encode()]),
            OURS: partial(ours, partial(list, codes), options, "nvjitlink"),
            OURS_NEW: partial(ours, partial(again, codes), options, "nvjitlink"),
        }
        columns = measure.rounds({name: partial(_itself, row) for name, row in rows.items()}, rounds)
        for name, times in columns.items():
            seconds[name].append(times)
    return quantities, seconds


def _itself(row: Callable[[], object]) -> Callable[[], object]:
    return row


def report_series(report: measure.Report, series: Series, rounds: int) -> dict[str, Any]:
    """Measure and report one series, with its exponents and their limits; return what the plot needs."""
    quantities, seconds = points(series, rounds)
    for place, quantity in enumerate(quantities):
        for name, columns in seconds.items():
            report.row(series.name, f"{quantity:,} {series.unit}, {name}", columns[place], seconds[DIRECT][place])
    lows = {name: [measure.Summary.of(times).low for times in columns] for name, columns in seconds.items()}
    half = len(quantities) // 2
    exponents = {name: measure.fitted_exponent(quantities[half:], times[half:]) for name, times in lows.items()}
    print("  exponents: " + ", ".join(f"{name} {exponent:.2f}" for name, exponent in exponents.items()))
    for name in (OURS, OURS_NEW):
        limit = LIMIT * max(1.0, exponents[DIRECT])
        report.limit(f"{series.name}: exponent, {name}", exponents[name], round(limit, 3))
    return {"name": series.name, "unit": series.unit, "x": quantities, "seconds": lows, "exponents": exponents}


def draw(series: list[dict[str, Any]], file: Path, title: str) -> None:
    """Draw each series on two logarithmic axes."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "cudalink", "font.size": 9}
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(series), figsize=(4 * len(series), 3.4), layout="constrained")
    for axis, figures in zip(axes, series, strict=True):
        for name, times in figures["seconds"].items():
            label = f"{name}, exponent {figures['exponents'][name]:.2f}"
            axis.loglog(
                figures["x"], [1e3 * time for time in times], marker="o", ms=3, label=label, color=COLOURS[name]
            )
        axis.set(title=figures["name"], xlabel=figures["unit"], ylabel="milliseconds")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    figure.suptitle(title, fontsize=9)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    file.write_text("".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines()), encoding="utf-8")


def main() -> int:
    """Measure every series; return exit code 1 beyond a limit."""
    parser = measure.parser("growth", rounds=15, description=__doc__ or "")
    parser.add_argument("--svg", type=Path, help="file for the plot; needs matplotlib")
    options = parser.parse_args()
    nvjitlink = probes.nvjitlink()
    assert nvjitlink.usable, nvjitlink.obstacle
    report = measure.Report("growth", f"How a link grows, nvJitLink {nvjitlink.usable}")
    curves = [report_series(report, series, options.rounds) for series in SERIES]
    report.fact("series", curves)
    if options.svg:
        about = report.environment
        draw(curves, options.svg, f"nvJitLink {nvjitlink.usable}; {about['device']}; {about['processor']}")
    return report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())

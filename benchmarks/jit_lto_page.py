"""Tables and plots of ``docs/hardware/jit-lto.md`` from its figures; a call draws the plots in ``docs/images``.

::

    python benchmarks/jit_lto_page.py
    python benchmarks/jit_lto_page.py --take FOLDER...

The second form first copies the figures that ``benchmarks/jit_lto.py`` left in folders, one for each device. Plots need
matplotlib; ``--no-plots`` leaves them as they are. Each plot carries the digest of the figures that it shows.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import math
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DATA = ROOT / "docs" / "hardware"
IMAGES = ROOT / "docs" / "images"
#: Columns of the page's text.
WIDTH = 140
#: The release that plots show; tables have all.
SHOWN = "13.0"
WAYS = {"single": "single source", "lto": "LTO", "ptx": "PTX", "cubin": "cubin"}
SIZES = {"memory": "from memory", "l2": "in the L2 cache"}
COLOURS = {"single": "#555555", "lto": "#1f77b4", "ptx": "#d62728", "cubin": "#e89c1f"}
KINDS = {"whole-ptx": "single source as PTX", "ptx": "PTX", "cubin": "cubin", "lto": "LTO-IR"}
CACHES = {"off": "off", "new": "new", "second process": "filled"}

#: The figures of the machine code, by name in the data, with the heads of their columns.
CODE = {
    "registers": "registers",
    "local bytes": "local bytes",
    "blocks per multiprocessor": "blocks per multiprocessor",
    "instructions": "instructions",
    "calls": "calls",
    "slow-path calls": "slow-path calls",
}
LINKERS = {"nvrtc": "none", "nvjitlink": "nvJitLink", "driver": "driver"}
#: Ways and linkers, in the order of the table of the machine code.
VARIANTS = (
    *(("single", "nvrtc"), ("lto", "nvjitlink"), ("ptx", "nvjitlink"), ("cubin", "nvjitlink")),
    *(("single", "driver"), ("ptx", "driver"), ("cubin", "driver")),
)

Row = dict[str, Any]


def figures() -> list[dict[str, Any]]:
    """Return the figures of every device, in the order of their names."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(DATA.glob("jit-lto-*.json"))]


def take(folder: Path) -> None:
    """Copy the figures of one device to the documentation, with the links that a second call measured."""
    content = json.loads((folder / "jit-lto.json").read_text(encoding="utf-8"))
    more = folder / "jit-lto-links.json"
    if more.exists():
        made = json.loads(more.read_text(encoding="utf-8"))["links"]
        linkers = {row["linker"] for row in made}
        content["links"] = [link for link in content["links"] if link["linker"] not in linkers] + made
    content["links"].sort(key=lambda link: link["linker"])
    name = f"jit-lto-{content['about']['driver']}-{short(content).lower()}.json"
    (DATA / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def short(content: dict[str, Any]) -> str:
    """Return the short name of the device, such as ``"H100"``."""
    return str(content["about"]["device"]).removeprefix("NVIDIA ").split()[0]


def variant(content: dict[str, Any], kernel: str, release: str, mode: str, linker: str) -> Row:
    """Return one variant of a kernel."""
    rows = content["kernels"][kernel]["variants"]
    return next(row for row in rows if (row["release"], row["way"], row["linker"]) == (release, mode, linker))


def linked_by_nvjitlink(content: dict[str, Any], mode: str) -> Iterator[Row]:
    """Yield the variants of every kernel and release that nvJitLink linked one way."""
    for kernel in content["kernels"].values():
        yield from (row for row in kernel["variants"] if row["way"] == mode and row["linker"] == "nvjitlink")


def _range(values: Sequence[float], digits: int, unit: str = "") -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return f"{low}{unit}" if low == high else f"{low}{unit} to {high}{unit}"


def _apart(ratios: Sequence[float]) -> str:
    return f"{100 * max(abs(ratio - 1) for ratio in ratios):.1f} %"


def measured(content: dict[str, Any]) -> str:
    """Return the line that says when, how and where the figures were measured."""
    about = content["about"]
    device = f"an {short(content)}, driver {about['driver']}"
    return f"Measured {about['date'][:10]} by `{about['command']}` on {device}."


def _both(contents: Sequence[dict[str, Any]]) -> str:
    return "\n".join(measured(content) for content in contents)


def answer(contents: Sequence[dict[str, Any]]) -> str:
    """Return what LTO buys and what linking without it costs, from all devices and releases."""
    every: list[float] = []
    no_lto: dict[str, list[float]] = {}
    for content in contents:
        every += [row["times"][size]["ratio_median"] for row in linked_by_nvjitlink(content, "lto") for size in SIZES]
        for name, kernel in content["kernels"].items():
            for row in kernel["variants"]:
                if row["linker"] == "nvjitlink" and row["way"] != "lto":
                    no_lto.setdefault(name, []).extend(row["times"][size]["ratio_median"] for size in SIZES)
    again = [
        row["times"][size]["ratio_median"]
        for content in contents
        for kernel in content["kernels"].values()
        for row in kernel["variants"]
        if row["way"] == "single again"
        for size in SIZES
    ]
    same = [
        row["code"] == variant(content, name, row["release"], "single", "nvrtc")["code"]
        for content in contents
        for name, kernel in content["kernels"].items()
        for row in kernel["variants"]
        if row["way"] == "lto" and row["linker"] == "nvjitlink"
    ]
    times: dict[str, list[float]] = {}
    for content in contents:
        for row in content["links"]:
            if row["linker"] != "driver" and row["cache"] == "off" and "failed" not in row:
                times.setdefault(row["kind"], []).extend(figures["median"] for figures in row["later"].values())
    gives = (
        f"{sum(same)} of {len(same)} images that nvJitLink linked from LTO-IR have the same instructions as the single "
        f"source, without a call. Their times differ from it by at most {_apart(every)}; those of two copies of one "
        f"image by at most {_apart(again)}."
    )
    each = ", ".join(f"{_range(ratios, 2)} times for `{name}`" for name, ratios in no_lto.items())
    stay = f"Linked as PTX or cubin, a kernel takes longer than the single source: {each}."
    paid = (
        f"Without a cache, nvJitLink takes {_range(times['lto'], 0)} ms for LTO-IR, {_range(times['ptx'], 0)} ms for "
        f"PTX and {_range(times['cubin'], 2)} ms for cubins."
    )
    lines = [
        f"- **LTO gives back the single source.** {gives}",
        f"- **Without LTO the calls stay.** {stay}",
        f"- **LTO is paid when linking.** {paid}",
    ]
    wrapped = [textwrap.fill(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False) for line in lines]
    return "\n".join([*wrapped, "", _both(contents)])


def times_table(contents: Sequence[dict[str, Any]], size: str) -> str:
    """Return the table of the kernels' times for one size."""
    lines = [
        "| device | kernel | CUDA | single source | LTO | PTX | cubin | driver: single | driver: PTX | driver: cubin |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|---|---|"]
    for content in contents:
        for name, kernel in content["kernels"].items():
            for release in sorted({row["release"] for row in kernel["variants"]}):
                single = variant(content, name, release, "single", "nvrtc")["times"][size]["median"]
                cells = [short(content), f"`{name}`", release, f"{single:.1f} µs"]
                ways = (("lto", "nvjitlink"), ("ptx", "nvjitlink"), ("cubin", "nvjitlink"), ("single", "driver"))
                for way, linker in (*ways, ("ptx", "driver"), ("cubin", "driver")):
                    row = variant(content, name, release, way, linker)
                    refused = f"refused, {row['refused']['code']}" if "refused" in row else ""
                    cells.append(refused or f"{row['times'][size]['ratio_median']:.3f}")
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", _both(contents)])


def code_table(contents: Sequence[dict[str, Any]]) -> str:
    """Return the table of registers, memory, blocks, instructions and calls; releases of equal figures share a row."""
    content = contents[0]
    lines = [f"| kernel | | linker | CUDA | {' | '.join(CODE.values())} |", "|---" * (4 + len(CODE)) + "|"]
    for name, kernel in content["kernels"].items():
        for way, linker in VARIANTS:
            releases: dict[tuple[int, ...], list[str]] = {}
            for row in kernel["variants"]:
                if (row["way"], row["linker"]) == (way, linker) and "refused" not in row:
                    releases.setdefault(tuple(row[figure] for figure in CODE), []).append(row["release"])
            for numbers, equal in releases.items():
                cells = [f"`{name}`", WAYS[way], LINKERS[linker], ", ".join(equal), *map(str, numbers)]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", measured(content)])


def later(content: dict[str, Any], linker: str, kind: str, cache: str, kernel: str) -> float:
    """Return the median milliseconds of a kernel's later links."""
    rows = content["links"]
    figures = next(row for row in rows if (row["linker"], row["kind"], row["cache"]) == (linker, kind, cache))
    return float(figures["later"][kernel]["median"])


def launches(content: dict[str, Any], kernel: str, size: str, cache: str) -> int:
    """Return after how many launches LTO has won back what its link took longer than that of PTX; 0: at once."""
    linker = f"nvJitLink {SHOWN}"
    longer = later(content, linker, "lto", cache, kernel) - later(content, linker, "ptx", cache, kernel)
    lto, ptx = (variant(content, kernel, SHOWN, way, "nvjitlink")["times"][size]["median"] for way in ("lto", "ptx"))
    return max(0, math.ceil(1e3 * longer / (ptx - lto))) if ptx > lto else -1


def pays_table(contents: Sequence[dict[str, Any]]) -> str:
    """Return the table of the launches that LTO needs to win back its longer link."""
    lines = ["| device | kernel | data | won by each launch | launches, cache off | launches, cache filled |"]
    lines += ["|---|---|---|---|---|---|"]
    for content in contents:
        for name in content["kernels"]:
            for size, data in SIZES.items():
                lto, ptx = (
                    variant(content, name, SHOWN, way, "nvjitlink")["times"][size]["median"] for way in ("lto", "ptx")
                )
                counts = [launches(content, name, size, cache) for cache in ("off", "second process")]
                shown = ["never" if count < 0 else f"{count:,}" for count in counts]
                lines.append(f"| {short(content)} | `{name}` | {data} | {ptx - lto:.2f} µs | {' | '.join(shown)} |")
    return "\n".join([*lines, "", _both(contents)])


def link_table(contents: Sequence[dict[str, Any]]) -> str:
    """Return the table of link times by state of the cache."""
    lines = ["| device | linker | units | cache off | cache new: first link | cache filled: first link | later links |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for content in contents:
        for linker in sorted({row["linker"] for row in content["links"]}, key=str.lower):
            for kind, named in KINDS.items():
                rows = {row["cache"]: row for row in content["links"] if (row["linker"], row["kind"]) == (linker, kind)}
                if not rows or any("failed" in row for row in rows.values()):
                    continue
                cells = [
                    [figures["median"] for figures in rows["off"]["later"].values()],
                    list(rows["new"]["first"].values()),
                    list(rows["second process"]["first"].values()),
                    [figures["median"] for figures in rows["second process"]["later"].values()],
                ]
                shown = " | ".join(f"{min(cell):.2f} to {max(cell):.2f} ms" for cell in cells)
                lines.append(f"| {short(content)} | {linker} | {named} | {shown} |")
    return "\n".join([*lines, "", _both(contents)])


def cold_table(contents: Sequence[dict[str, Any]]) -> str:
    """Return the table of the small kernels' times with an L2 cache that other data has filled."""
    lines = ["| device | kernel | single source, L2 warm | L2 cold | LTO, L2 cold | PTX, L2 warm | PTX, L2 cold |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for content in contents:
        for name in content["kernels"]:
            single, lto, ptx = (
                variant(content, name, SHOWN, way, linker)
                for way, linker in (("single", "nvrtc"), ("lto", "nvjitlink"), ("ptx", "nvjitlink"))
            )
            cells = [
                f"{single['times']['l2']['median']:.1f} µs",
                f"{single['cold']['l2']['median']:.1f} µs",
                f"{lto['cold']['l2']['ratio_median']:.3f}",
                f"{ptx['times']['l2']['ratio_median']:.3f}",
                f"{ptx['cold']['l2']['ratio_median']:.3f}",
            ]
            lines.append(f"| {short(content)} | `{name}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", _both(contents)])


def clock_table(contents: Sequence[dict[str, Any]]) -> str:
    """Return the table of the clocks during the measurement."""
    lines = [
        "| device | kernel | data | SM clock | memory clock | temperature | power |",
        "|---|---|---|---|---|---|---|",
    ]
    for content in contents:
        for name, kernel in content["kernels"].items():
            for size, case in kernel["cases"].items():
                during = case["clocks"]["meanwhile"]
                cells = [
                    "not known" if during[what] is None else _range([during[what][0], during[what][2]], 0, f" {unit}")
                    for what, unit in (("sm", "MHz"), ("memory", "MHz"), ("temperature", "°C"), ("power", "W"))
                ]
                lines.append(f"| {short(content)} | `{name}` | {SIZES[size]} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", _both(contents)])


#: What makes the generated parts of the page, by their names.
PARTS: dict[str, Callable[[Sequence[dict[str, Any]]], str]] = {
    "answer": answer,
    "times-memory": lambda contents: times_table(contents, "memory"),
    "times-l2": lambda contents: times_table(contents, "l2"),
    "code": code_table,
    "pays": pays_table,
    "links": link_table,
    "cold": cold_table,
    "clocks": clock_table,
}


def blocks() -> dict[str, str]:
    """Return the generated parts of the page, by name."""
    return {name: make(figures()) for name, make in PARTS.items()}


def points(contents: Sequence[dict[str, Any]], plot: str) -> list[dict[str, Any]]:
    """Return what a plot shows: one panel for each device, or, for ``"code"``, for each figure."""
    return {"time": _time_points, "code": _code_points, "link": _link_points}[plot](contents)


def _time_points(contents: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "title": f"{short(content)}, driver {content['about']['driver']}",
            "rows": [
                {
                    "label": f"{name}, {SIZES[size]}",
                    **{
                        way: [
                            variant(content, name, SHOWN, way, "nvjitlink")["times"][size][f"ratio_{part}"]
                            for part in ("low", "median", "high")
                        ]
                        for way in ("ptx", "cubin", "lto")
                    },
                }
                for name in content["kernels"]
                for size in SIZES
            ],
        }
        for content in contents
    ]


def _code_points(contents: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    content = contents[0]
    linkers = {"single": "nvrtc", "lto": "nvjitlink", "ptx": "nvjitlink", "cubin": "nvjitlink"}
    return [
        {
            "title": title,
            "rows": [
                {
                    "label": name,
                    **{way: variant(content, name, SHOWN, way, linker)[figure] for way, linker in linkers.items()},
                }
                for name in content["kernels"]
            ],
        }
        for figure, title in (("registers", "Registers of a thread"), ("calls", "Calls left in the machine code"))
    ]


def _link_points(contents: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    panels = []
    for content in contents:
        rows = [
            {
                "label": f"{row['linker']}, {KINDS[row['kind']]}, cache {CACHES[row['cache']]}",
                "kind": row["kind"],
                "first": max(row["first"].values()),
                "least": min(row["first"].values()),
            }
            for row in content["links"]
            if "failed" not in row and row["cache"] != "off" and row["kind"] != "whole-ptx"
        ]
        panels.append({"title": f"{short(content)}, driver {content['about']['driver']}", "rows": rows})
    return panels


#: The plots: file, and the label of the axis.
PLOTS = {
    "time": ("jit-lto-time.svg", "time of the kernel, single source = 1"),
    "code": ("jit-lto-code.svg", ""),
    "link": ("jit-lto-link.svg", "milliseconds of a first link"),
}


def digest(contents: Sequence[dict[str, Any]], plot: str) -> str:
    """Return the digest of the figures of a plot, which the plot carries."""
    text = json.dumps([PLOTS[plot], points(contents, plot)], sort_keys=True)
    return f"figures {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def draw(contents: Sequence[dict[str, Any]], plot: str) -> str:
    """Return a plot as SVG: dark text on white, which both themes of the site show; the same for the same figures."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcdefaults()
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "cudalink", "font.size": 9, "axes.axisbelow": True}
    from matplotlib import pyplot as plt

    panels = points(contents, plot)
    height = 1.6 + max(len(panel["rows"]) for panel in panels) * (0.24 if plot == "link" else 0.42)
    figure, axes = plt.subplots(
        1, len(panels), figsize=(5.2 * len(panels), height), layout="constrained", sharey=True, squeeze=False
    )
    for axis, panel in zip(axes[0], panels, strict=True):
        {"time": _draw_times, "code": _draw_bars, "link": _draw_links}[plot](axis, panel["rows"])
        axis.set(title=panel["title"], xlabel=PLOTS[plot][1])
        axis.grid(axis="x", alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_yticks(range(len(panels[0]["rows"])), [row["label"] for row in panels[0]["rows"]])
    axes[0][0].invert_yaxis()
    if plot != "link":
        handles = axes[0][0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside upper center", ncols=4, frameon=False)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Description": digest(contents, plot)})
    plt.close(figure)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def _draw_times(axis: Any, rows: list[dict[str, Any]]) -> None:
    axis.axvline(1.0, color="#555555", lw=1)
    for number, way in enumerate(("ptx", "cubin", "lto")):
        places = [place + 0.25 * (number - 1) for place in range(len(rows))]
        values = [row[way][1] for row in rows]
        axis.barh(places, values, height=0.22, color=COLOURS[way], label=WAYS[way])
        for place, value in zip(places, values, strict=True):
            axis.text(value, place, f" {value:.2f}", va="center", fontsize=7)
    axis.margins(x=0.12)


def _draw_bars(axis: Any, rows: list[dict[str, Any]]) -> None:
    for number, way in enumerate(WAYS):
        places = [place + 0.2 * (number - 1.5) for place in range(len(rows))]
        values = [row[way] for row in rows]
        axis.barh(places, values, height=0.18, color=COLOURS[way], label=WAYS[way])
        for place, value in zip(places, values, strict=True):
            axis.text(value, place, f" {value}", va="center", fontsize=7)
    axis.margins(x=0.12)


def _draw_links(axis: Any, rows: list[dict[str, Any]]) -> None:
    axis.set_xscale("log")
    for place, row in enumerate(rows):
        colour = COLOURS[row["kind"]]
        axis.plot([row["least"], row["first"]], [place, place], color=colour, lw=4, solid_capstyle="round")
        text = f"{row['least']:.1f} to {row['first']:.1f}"
        away = {"xytext": (5, 0), "textcoords": "offset points"}
        axis.annotate(text, (row["first"], place), **away, va="center", fontsize=7)
    axis.margins(x=0.25)


def main() -> int:
    """Draw the plots; return the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks/jit_lto_page.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--take", type=Path, nargs="*", default=[], help="folders with new figures")
    parser.add_argument("--no-plots", dest="plots", action="store_false", help="leave the plots as they are")
    options = parser.parse_args()
    for folder in options.take:
        take(folder)
    contents = figures()
    if options.plots:
        for plot, (file, _label) in PLOTS.items():
            (IMAGES / file).write_text(draw(contents, plot), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

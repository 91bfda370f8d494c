"""What LTO at link time buys on a GPU, and what linking without it costs: time, registers, calls, and link time.

Four kernels, each in a unit that calls functions of a second unit, are compiled as one source and linked as PTX, as
cubins and as LTO-IR, with NVRTC and nvJitLink of several releases, and by the driver's own linker.

Compiling needs toolchains (``cudalink toolchain get``) and no GPU; running needs a GPU and NumPy, and neither
toolchains nor a network::

    python benchmarks/jit_lto.py prepare --to prepared
    python benchmarks/jit_lto.py run --prepared prepared --json jit-lto.json

``links`` times only links, with each nvJitLink that it finds: libraries of wheels, and those that ``prepare --pack``
left in the folder. ``python benchmarks/jit_lto_page.py`` makes the page and its plots.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import importlib.util
import json
import lzma
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import measure
from lto import libraries, sass
from lto.device import FLUSH, Clocks, Device, Launches, Module
from lto.kernels import KERNELS, Kernel, Problem, single_source
from lto.libraries import LINKS, Linked, Refused

RELEASES = ("12.9", "13.0", "13.2")
#: The release whose single source is loaded twice, to show how much two copies of the same code differ.
TWICE = "13.0"
#: Seconds that the launches between two events take together, about; and the most launches.
GRAPH_SECONDS, MOST_LAUNCHES = 2e-3, 200
TOLERANCE = 1e-5
#: Elements of a large result that are compared: every so many.
STRIDE = 16
#: CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, MULTIPROCESSOR_COUNT.
L2_SIZE, MULTIPROCESSORS = 38, 16
#: How the driver links the units of a release; it links no LTO-IR.
DRIVEN = ("whole-ptx", "ptx", "cubin", "lto")
#: States of CUDA's compilation cache: off; a new folder; the same folder in a second process.
STATES = ("off", "new", "second process")


@dataclass(frozen=True)
class Variant:
    """One way from the source to an image."""

    release: str  # of NVRTC, which compiled, and of nvJitLink
    way: str  # "single", "ptx", "cubin", "lto"; "single again": the same image loaded a second time
    linker: str  # "nvrtc": none, the image is NVRTC's; "nvjitlink"; "driver"


def prepare(options: argparse.Namespace) -> int:
    """Compile and link every kernel with every release, one process for each; return the exit code."""
    folder: Path = options.to
    for release in options.releases:
        compile_with = [sys.executable, __file__, "compile", "--to", str(folder), "--release", release]
        subprocess.run(compile_with, check=True, env={**os.environ, "CUDA_CACHE_DISABLE": "1"})
        if release in options.pack:
            library = toolchain(release) / "libnvJitLink.so"
            with lzma.open(folder / f"libnvJitLink-{release}.so.xz", "wb", preset=6) as packed:
                packed.write(library.read_bytes())
    manifest = {"releases": list(options.releases), "arch": libraries.ARCH, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return 0


def toolchain(release: str) -> Path:
    """Return the folder of a release's libraries in the cache of toolchains."""
    from pytest_cudalink import toolchains

    return toolchains.cache_root() / "toolchains" / release / "lib64"


def compile_release(options: argparse.Namespace) -> int:
    """Compile and link every kernel with one release, in this process; return the exit code."""
    folder = toolchain(options.release)
    compiler, linker = libraries.nvrtc(folder), ctypes.CDLL(str(folder / "libnvJitLink.so"))
    for kernel in KERNELS.values():
        place = options.to / options.release / kernel.name
        place.mkdir(parents=True, exist_ok=True)
        for kind in ("whole-cubin", "whole-ptx"):
            image = libraries.compile_unit(compiler, single_source(kernel), f"{kernel.name}.cu", kind)
            (place / kind).write_bytes(image)
        for kind in LINKS:
            parts = (("kernel", kernel.kernel), ("functor", kernel.functor))
            units = [libraries.compile_unit(compiler, text, f"{kernel.name}.{part}.cu", kind) for part, text in parts]
            for (part, _), unit in zip(parts, units, strict=True):
                (place / f"{part}.{kind}").write_bytes(unit)
            (place / f"linked.{kind}").write_bytes(libraries.link(linker, kind, units).image)
    return 0


def units(place: Path, kind: str) -> list[bytes]:
    """Return the prepared units of one kind of a kernel."""
    names = [kind] if kind.startswith("whole") else [f"kernel.{kind}", f"functor.{kind}"]
    return [(place / name).read_bytes() for name in names]


def images(folder: Path, releases: Sequence[str], kernel: str, device: Device) -> Iterator[tuple[Variant, Any]]:
    """Yield each variant of a kernel with its image, or with the refusal of the driver's linker."""
    for release in releases:
        place = folder / release / kernel
        single = (place / "whole-cubin").read_bytes()
        yield Variant(release, "single", "nvrtc"), single
        if release == TWICE:
            yield Variant(release, "single again", "nvrtc"), single
        for kind in LINKS:
            yield Variant(release, kind, "nvjitlink"), (place / f"linked.{kind}").read_bytes()
        for kind in DRIVEN:
            way = "single" if kind == "whole-ptx" else kind
            try:
                yield Variant(release, way, "driver"), device.link(kind, units(place, kind)).image
            except Refused as refused:
                yield Variant(release, way, "driver"), refused


def deviation(expected: Any, result: Any) -> float:
    """Return the largest deviation from NumPy's result, relative to the tolerance: 1.0 or less is a match."""
    import numpy as np

    off = np.abs(result.astype(np.float64) - expected) / (TOLERANCE + TOLERANCE * np.abs(expected))
    return float("inf") if np.isnan(off).any() else float(off.max())


class Case:
    """One kernel on one problem: every variant is checked, then all are timed in turn."""

    def __init__(self, device: Device, problem: Problem, modules: dict[Variant, Module]) -> None:
        import numpy as np

        self.device, self.problem, self.modules = device, problem, modules
        self.pointers = [device.allocate(array.nbytes) for array in problem.inputs]
        for pointer, array in zip(self.pointers, problem.inputs, strict=True):
            device.to_device(pointer, array)
        self.empty = np.full(problem.length, np.nan, np.float32)
        self.pointers.append(device.allocate(self.empty.nbytes))
        self.flush_size = 4096 if device.emulated else FLUSH
        self.flush = device.allocate(self.flush_size)

    def deviations(self) -> dict[Variant, float]:
        """Run every variant once; return its deviation from NumPy."""
        expected = self.problem.expected()
        every = STRIDE if expected.size > 1 << 22 else 1
        expected, deviations = expected[::every], {}
        output = self.empty.copy()
        for variant, module in self.modules.items():
            self.device.to_device(self.pointers[-1], self.empty)
            launch = Launches(module, self.problem, self.pointers, 1)
            launch.all()
            self.device.wait()
            launch.close()
            self.device.from_device(output, self.pointers[-1])
            deviations[variant] = deviation(expected, self.problem.result(output)[::every])
        return deviations

    def times(self, rounds: int, clocks: Clocks) -> tuple[int, dict[Variant, list[float]], list[dict[str, Any]]]:
        """Return the number of launches between two events, the seconds of each variant, and the clocks meanwhile."""
        first = next(iter(self.modules.values()))
        trial = Launches(first, self.problem, self.pointers, 20)
        trial.seconds()
        most = 2 if self.device.emulated else MOST_LAUNCHES
        count = max(1, min(most, round(GRAPH_SECONDS / max(trial.seconds(), 1e-7))))
        trial.close()
        graphs = {
            variant: Launches(module, self.problem, self.pointers, count) for variant, module in self.modules.items()
        }
        seconds: dict[Variant, list[float]] = {variant: [] for variant in graphs}
        meanwhile = []
        for graph in graphs.values():
            graph.seconds()
        for order in orders(list(graphs), rounds):
            for variant in order:
                seconds[variant].append(graphs[variant].seconds())
            meanwhile.append(clocks.read())
        for graph in graphs.values():
            graph.close()
        return count, seconds, meanwhile

    def cold_times(self, rounds: int) -> dict[Variant, list[float]]:
        """Return the seconds of each variant's single launches, each after the L2 cache was filled with other data."""
        graphs = {variant: Launches(module, self.problem, self.pointers, 1) for variant, module in self.modules.items()}
        seconds: dict[Variant, list[float]] = {variant: [] for variant in graphs}
        for order in orders(list(graphs), rounds):
            for variant in order:
                seconds[variant].append(graphs[variant].cold_seconds(self.flush, self.flush_size))
        for graph in graphs.values():
            graph.close()
        return seconds

    def close(self) -> None:
        """Free the memory."""
        self.device.wait()
        self.device.free([*self.pointers, self.flush])


def orders(variants: list[Variant], rounds: int) -> Iterator[list[Variant]]:
    """Yield the variants in another order for each round; the same orders in every run."""
    shuffled = random.Random(1)
    for _ in range(rounds):
        yield shuffled.sample(variants, len(variants))


def summary(times: Sequence[float], single: Sequence[float]) -> dict[str, Any]:
    """Return the median and quartiles in microseconds, and those of the ratio to the single source in each round."""
    summary = measure.Summary.of(times)
    ratios = measure.Summary.of([mine / theirs for mine, theirs in zip(times, single, strict=True)])
    micro = {name: round(getattr(summary, name) * 1e6, 3) for name in ("median", "low", "high", "least")}
    return {**micro, **{f"ratio_{name}": round(getattr(ratios, name), 4) for name in ("median", "low", "high")}}


def kernel_figures(
    device: Device, clocks: Clocks, kernel: Kernel, releases: Sequence[str], options: argparse.Namespace
) -> dict[str, Any]:
    """Return everything about one kernel: its images, and its times on both sizes."""
    modules: dict[Variant, Module] = {}
    rows: dict[Variant, dict[str, Any]] = {}
    disassembler = None if device.emulated else sass.nvdisasm()  # every process starts slowly on an emulated driver
    for variant, image in images(options.prepared, releases, kernel.name, device):
        rows[variant] = {**asdict(variant)}
        if isinstance(image, Refused):
            rows[variant]["refused"] = {"call": image.call, "code": image.code, "text": image.text}
            continue
        module = modules[variant] = Module(device, image, kernel.name)
        rows[variant] |= {"bytes": len(image), "load": round(module.load_seconds * 1e6, 1), **module.facts()}
        if disassembler:
            rows[variant] |= sass.calls_left(sass.read(image, disassembler))
    cases = {}
    for size, number in kernel.sizes.items():
        case = Case(device, kernel.problem(64 if options.rehearse else number), modules)
        if not device.emulated:
            for variant, off in case.deviations().items():
                rows[variant].setdefault("deviation", {})[size] = round(off, 4)
        before = clocks.read()
        count, warm, meanwhile = case.times(options.rounds, clocks)
        cold = case.cold_times(max(1, options.rounds // 2))
        after = clocks.read()
        case.close()
        for variant in modules:
            single = Variant(variant.release, "single", "nvrtc")
            rows[variant].setdefault("times", {})[size] = summary(warm[variant], warm[single])
            rows[variant].setdefault("cold", {})[size] = summary(cold[variant], cold[single])
        cases[size] = {
            "n": number,
            "launches": count,
            "rounds": options.rounds,
            "clocks": {"before": before, "after": after, "meanwhile": clock_range(meanwhile)},
        }
        line = ", ".join(
            f"{module.release} {module.way} {module.linker} {rows[module]['times'][size]['ratio_median']:.3f}"
            for module in modules
        )
        print(f"{kernel.name} {size}: {line}", flush=True)
    for module in modules.values():
        module.unload()
    return {"what": kernel.what, "calls": kernel.calls, "cases": cases, "variants": list(rows.values())}


def clock_range(read: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the least, the middle and the greatest of the clocks that were read between rounds."""
    ranges: dict[str, Any] = {}
    for name in ("sm", "memory", "temperature", "power"):
        values = [row[name] for row in read if row[name] is not None]
        ranges[name] = [min(values), statistics.median(values), max(values)] if values else None
    ranges["reasons"] = sorted({row["reasons"] for row in read if row["reasons"] is not None})
    return ranges


def run(options: argparse.Namespace) -> int:
    """Measure kernels and links on this machine's GPU; return the exit code, 1 if a result deviates from NumPy's."""
    manifest = json.loads((options.prepared / "manifest.json").read_text(encoding="utf-8"))
    device = Device()
    clocks = Clocks(device.bus())
    about = {
        **measure.environment(),
        "device": device.name(),
        "driver": clocks.driver(),
        "emulated": device.emulated,
        "command": "python benchmarks/jit_lto.py run",
        "l2": device.attribute(L2_SIZE),
        "multiprocessors": device.attribute(MULTIPROCESSORS),
        "highest clocks": clocks.most(),
        "prepared": manifest,
    }
    print(f"{about['device']}, driver {about['driver']}; rounds {options.rounds}", flush=True)
    content: dict[str, Any] = {"format": 1, "about": about, "kernels": {}, "links": []}
    for kernel in KERNELS.values():
        figures = kernel_figures(device, clocks, kernel, manifest["releases"], options)
        content["kernels"][kernel.name] = figures
        write(options.json, content)
    if options.links:
        content["links"] = link_figures(options)
    write(options.json, content)
    rows = [row for kernel in content["kernels"].values() for row in kernel["variants"]]
    wrong = [row for row in rows if max(row.get("deviation", {"": 0.0}).values()) > 1.0]
    for row in wrong:
        print(f"WRONG: {row}", file=sys.stderr)
    return 1 if wrong else 0


def links(options: argparse.Namespace) -> int:
    """Add the times of links to a file of figures, replacing those of the same linkers; return the exit code."""
    content: dict[str, Any] = {"links": []}
    if options.json.exists():
        content = json.loads(options.json.read_text(encoding="utf-8"))
    made = link_figures(options)
    linkers = {row["linker"] for row in made}
    content["links"] = [link for link in content["links"] if link["linker"] not in linkers] + made
    write(options.json, content)
    return 0


def write(file: Path, content: dict[str, Any]) -> None:
    """Write the figures."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def linkers(options: argparse.Namespace, unpacked: Path) -> dict[str, str]:
    """Return the linkers of this machine by name, such as ``"nvJitLink 13.0"``, with the path of each library."""
    libraries: list[Path] = list(options.nvjitlink)
    for packed in sorted(options.prepared.glob("libnvJitLink-*.so.xz")):
        library = unpacked / packed.stem
        with lzma.open(packed) as content:
            library.write_bytes(content.read())
        libraries.append(library)
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        libraries += sorted(Path(folder).glob("*/lib/libnvJitLink.so.1[23]"))
    made: dict[str, str] = {}
    for path in libraries:
        question = [sys.executable, __file__, "version", "--library", str(path)]  # in a process that ends: it is large
        answer = subprocess.run(question, capture_output=True, text=True, check=False)
        if answer.returncode:
            print(f"{path}: {answer.stderr.strip().splitlines()[-1]}", file=sys.stderr)
            continue
        made.setdefault(f"nvJitLink {answer.stdout.strip()}", str(path))
    if options.driver:
        made["driver"] = "libcuda.so.1"
    return made


def link_figures(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the times of links by linker, kind and state of the cache, each measured in its own process."""
    manifest = json.loads((options.prepared / "manifest.json").read_text(encoding="utf-8"))
    answered = []
    with tempfile.TemporaryDirectory() as temporary:
        for name, path in linkers(options, Path(temporary)).items():
            release = name.split()[-1] if name != "driver" else TWICE
            if release not in manifest["releases"]:
                continue
            for kind in ("whole-ptx", "ptx", "cubin") if name == "driver" else LINKS:
                for state in STATES:
                    cache = Path(temporary) / f"cache-{name}-{kind}"
                    setting = {"CUDA_CACHE_DISABLE": "1"} if state == "off" else {"CUDA_CACHE_DISABLE": "0"}
                    env = {**os.environ, **setting, "CUDA_CACHE_PATH": str(cache)}
                    place = options.prepared / release
                    child = [sys.executable, __file__, "links-of", "--library", path, "--units", str(place)]
                    child += ["--kind", kind, "--rounds", str(options.link_rounds)]
                    done = subprocess.run(child, env=env, capture_output=True, text=True, check=False)
                    answer = json.loads(done.stdout) if done.returncode == 0 else {"failed": done.stderr[-400:]}
                    files = sum(1 for path in cache.rglob("*") if path.is_file()) if cache.is_dir() else 0
                    row = {"linker": name, "release": release, "kind": kind, "cache": state, "cache files": files}
                    answered.append({**row, **answer})
            print(f"links: {name}", flush=True)
    return answered


def links_of(options: argparse.Namespace) -> int:
    """Print, as JSON, the times of one linker's links in this process: the first of each kernel, and later ones."""
    driven = options.library == "libcuda.so.1"
    device: Device | None = None
    with contextlib.suppress(OSError):  # a machine without a driver
        device = Device()  # as in a program with a GPU: nvJitLink caches nothing without a driver
    library, opened = libraries.opened(Path(options.library) if not driven else Path("libc.so.6"))

    def once(kernel: str) -> Linked:
        made = units(options.units / kernel, options.kind)
        if driven:
            assert device is not None, "no driver"
            return device.link(options.kind, made)
        return libraries.link(library, options.kind, made)

    first: dict[str, float] = {}
    same: dict[str, bool] = {}
    for kernel in KERNELS:
        linked = once(kernel)
        first[kernel] = round(linked.seconds * 1e3, 4)
        prepared = options.units / kernel / f"linked.{options.kind}"
        if prepared.exists() and not driven:
            digests = [hashlib.sha256(image).hexdigest() for image in (linked.image, prepared.read_bytes())]
            same[kernel] = digests[0] == digests[1]
    later: dict[str, list[float]] = {kernel: [] for kernel in KERNELS}
    for _ in range(options.rounds):
        for kernel in KERNELS:
            later[kernel].append(once(kernel).seconds * 1e3)
    spread = {}
    for kernel, times in later.items():
        middle = measure.Summary.of(times)
        spread[kernel] = {name: round(getattr(middle, name), 4) for name in ("median", "low", "high")}
    print(json.dumps({"open": round(opened * 1e3, 2), "first": first, "later": spread, "same image": same}))
    return 0


def version(options: argparse.Namespace) -> int:
    """Print the release of an nvJitLink; return the exit code."""
    print(libraries.version(ctypes.CDLL(options.library)))
    return 0


def main() -> int:
    """Run the verb of the command line; return its exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks/jit_lto.py", description=(__doc__ or "").partition("\n\n")[0])
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("prepare", help="compile and link with every release; needs toolchains, no GPU")
    verb.add_argument("--to", type=Path, required=True, help="folder for units and images")
    verb.add_argument("--releases", nargs="*", default=RELEASES)
    verb.add_argument("--pack", nargs="*", default=[], help="releases whose nvJitLink to pack into the folder")
    verb.set_defaults(main=prepare)
    verb = verbs.add_parser("compile", help="what prepare runs for each release")
    verb.add_argument("--to", type=Path, required=True)
    verb.add_argument("--release", required=True)
    verb.set_defaults(main=compile_release)
    for name, function, text in (
        ("run", run, "measure kernels and links on this machine's GPU"),
        ("links", links, "measure only links"),
    ):
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("--prepared", type=Path, required=True, help="folder that prepare made")
        verb.add_argument("--json", type=Path, required=True, help="file for the figures")
        verb.add_argument("--rounds", type=int, default=60, help="how often each variant is timed")
        verb.add_argument("--link-rounds", type=int, default=15, help="how often each link is timed")
        verb.add_argument("--nvjitlink", type=Path, nargs="*", default=[], help="further copies of libnvJitLink")
        verb.add_argument("--no-driver", dest="driver", action="store_false", help="leave out the driver's links")
        verb.add_argument("--no-links", dest="links", action="store_false", help="measure only kernels")
        verb.add_argument("--rehearse", action="store_true", help="small problems, for the emulated driver")
        verb.set_defaults(main=function)
    verb = verbs.add_parser("links-of", help="what links runs for each linker, kind and state of the cache")
    verb.add_argument("--library", required=True)
    verb.add_argument("--units", type=Path, required=True)
    verb.add_argument("--kind", required=True)
    verb.add_argument("--rounds", type=int, required=True)
    verb.set_defaults(main=links_of)
    verb = verbs.add_parser("version", help="what links runs for each nvJitLink")
    verb.add_argument("--library", required=True)
    verb.set_defaults(main=version)
    options = parser.parse_args()
    return int(options.main(options))


if __name__ == "__main__":
    sys.exit(main())

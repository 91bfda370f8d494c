"""Walk a newcomer's path from the built wheel, and time it: ``nox -s stranger``.

    python -m campaigns.stranger --wheel PATH [--cold | --warm] [--pythons]

Without an option it walks twice, each time in a new home folder: first without any cache, then with the caches of pip,
uv and cudalink that the first walk left. What the second one takes is ours, to unpack and to run; what the first one
takes in addition is the downloads. With --pythons it walks once more on each other Python that the package names.
Exit code 1 if a step does not do what its page says, or if a limit is missed.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from campaigns.release.places import find_python

from .path import CACHES, Failure, HomeFolder, Step, steps

ROOT = Path(__file__).parent.parent.parent
#: Seconds for the whole path without caches, and for the part of it that no network decides.
LIMIT, OURS = 600, 300
SAVED = ROOT / ".cudalink" / "stranger.json"


def _walk(user: HomeFolder, path: Sequence[Step], title: str) -> list[float]:
    """Walk the whole path; the seconds of each step."""
    took = []
    for step in path:
        took.append(user.walk(step))
        print(f"{title}: {took[-1]:6.1f} s  {step.command}", flush=True)
    return took


def _machine() -> str:
    model = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    return f"{cores} cores ({model[1] if model else os.uname().machine}), load {load:.1f} at the start"


def _other_pythons() -> list[str]:
    """The versions that the package's classifiers name, without the one that runs this program."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    python = re.compile(r"Programming Language :: Python :: (3\.\d+)")
    named = [match[1] for match in map(python.fullmatch, project["classifiers"]) if match]
    return [version for version in named if version != "{}.{}".format(*sys.version_info[:2])]


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def table(path: Sequence[Step], walks: Mapping[str, Sequence[float]]) -> str:
    """A line for each step with its seconds, and one for all; with both walks, downloads apart from what is ours."""
    shown = dict(walks)
    if {"cold", "ours"} <= shown.keys():
        pairs = zip(shown["cold"], shown["ours"], strict=True)
        shown["downloads"] = [max(0.0, first - second) for first, second in pairs]
    lines = ["".join(f"{name:>10}" for name in shown) + "  step"]
    for index, step in enumerate(path):
        lines.append("".join(f"{numbers[index]:10.1f}" for numbers in shown.values()) + f"  {step.command}")
    lines.append("".join(f"{sum(numbers):10.1f}" for numbers in shown.values()) + "  seconds in all")
    return "\n".join(lines)


def missed(walks: Mapping[str, Sequence[float]]) -> list[str]:
    """The limits that are missed; another Python has downloads of its own."""
    limits = {"cold": ("the path without caches", LIMIT), "ours": ("what is ours of it", OURS)}
    over = []
    for name, took in walks.items():
        what, limit = limits.get(name, (f"the path on Python {name}", LIMIT))
        over += [f"{what} took {sum(took):.0f} s; expected less than {limit} s"] * (sum(took) >= limit)
    return over


def main() -> None:
    """Walk, print the table and keep the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m campaigns.stranger", description=(__doc__ or "").split("\n\n    ")[0]
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--cold", action="store_true", help="walk once, without caches: only the sum is judged")
    which.add_argument("--warm", action="store_true", help="walk once, with this user's caches of pip, uv and cudalink")
    parser.add_argument("--pythons", action="store_true", help="walk once more on each other Python of the package")
    parser.add_argument("--wheel", type=Path, required=True, help="the wheel to install; the session gives its own")
    options = parser.parse_args()
    path, machine = steps(), _machine()
    walks: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="cudalink-stranger-") as name:
        work = Path(name)
        wheel = options.wheel.resolve()
        print(f"{wheel.name} stands in for pytest-cudalink in `pip install` and, as CUDALINK_REQUIREMENT, in the cells")
        caches: dict[str, str] | None = None
        try:
            if options.warm:
                mine = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
                caches = {name: os.environ.get(name) or str(mine / Path(place).name) for name, place in CACHES.items()}
            else:
                walks["cold"] = _walk(HomeFolder(work / "cold", wheel), path, "cold")
                caches = {name: str(work / "cold" / place) for name, place in CACHES.items()}
                megabytes = {Path(place).name: _size(work / "cold" / place) // 10**6 for place in CACHES.values()}
                print("in the caches:", ", ".join(f"{size} MB {name}" for name, size in megabytes.items()))
                if not megabytes["pip"]:
                    print("pip has cached nothing, as some package indexes want it: its downloads count as ours")
            if not options.cold:
                walks["ours"] = _walk(HomeFolder(work / "warm", wheel, caches), path, "warm")
            for version in _other_pythons() if options.pythons else ():
                if (python := find_python(version)) is None:
                    print(f"Python {version} is left out: not found; install it, as with 'uv python install {version}'")
                else:
                    home = HomeFolder(work / version, wheel, caches, Path(python))
                    walks[version] = _walk(home, path, f"Python {version}")
        except Failure as failure:
            sys.exit(str(failure))
    print(f"\n{machine}; {wheel.name}\n{table(path, walks)}")
    SAVED.parent.mkdir(exist_ok=True)
    figures = {"machine": machine, "wheel": wheel.name, "steps": [step.command for step in path]}
    SAVED.write_text(json.dumps({**figures, "seconds": walks}, indent=1) + "\n", encoding="utf-8")
    if late := missed(walks):
        sys.exit("\n".join(late))


if __name__ == "__main__":
    main()

"""Hold the audit of wheels against what happens: an environment for each wheel of the field, and every file loaded.

    python -m campaigns.environments.wheels [NAME ...] [--save]

An environment has exactly what a wheel requires, at the highest resolution and at the lowest; where a library of CUDA's
is missing there, also one for each extra, as the audit counts what extras bring. Each library of the wheel is loaded in
a process of its own with every symbol bound, after what it needs of the environment, wherever that lies, on an emulated
driver; packages are imported. Errors of the audit mean that a library of CUDA's, or a function of one, is not there;
where it has none, nothing is missing but what its notes name.
Exit code 1: a wheel for which that is not so. ``--save`` writes each verdict that agrees to wheels.toml, with its date.
"""

import argparse
import datetime as dt
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

DATA: Final = Path(__file__).with_name("wheels.toml")
_LOADS: Final = Path(__file__).with_name("loads.py")
#: The driver that is emulated: the newest one with which wheels of both majors load.
_DRIVER: Final = "13.0"
#: Libraries of CUDA's by their names; those of the driver and of TensorRT are not among them.
_CUDAS: Final = re.compile(r"lib(?:cu(?!da\.so)|nv(?!idia-|infer)|nccl)\w*\.so")
_MISSING: Final = re.compile(r"(\S+\.so[.\d]*): cannot open|undefined symbol: (\w+)|version `(\S+)' not found")
#: The names of functions of CUDA's libraries, such as cublasCreate_v2 and nvJitLinkVersion.
_FUNCTIONS: Final = re.compile(r"_{0,2}(?:cu[a-z]+[A-Z_]|nv[a-zA-Z]+[A-Z_]|nccl[A-Z])")


@dataclass(frozen=True)
class Verdict:
    """A wheel, what the audit says of it, and what happened."""

    wheel: str  # its file name
    errors: tuple[str, ...]  # of the audit
    notes: tuple[str, ...]
    missing: tuple[str, ...]  # libraries and functions of CUDA's that were not there in any environment
    files: int  # that were loaded
    environments: tuple[str, ...]  # that were made
    otherwise: tuple[str, ...] = ()  # what else failed: libraries of others, and imports

    @property
    def agrees(self) -> bool:
        # no loader sees that a linker refuses LTO-IR
        if any(" has LTO-IR " not in error for error in self.errors):
            return bool(self.missing)
        return all(any(name in note for note in self.notes) for name in self.missing)

    def row(self, name: str, date: dt.date) -> str:
        """The row of wheels.toml."""
        values = {
            "wheel": self.wheel, "date": str(date), "files": self.files, "environments": self.environments,
            "missing": self.missing, "errors": len(self.errors), "otherwise": self.otherwise,
        }  # fmt: skip
        return f"{name} = {{ {', '.join(f'{key} = {json.dumps(value)}' for key, value in values.items())} }}\n"


def _run(*words: str | Path, seconds: float = 900, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, timeout=seconds, **more)


def audited(wheel: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The errors of the audit, and its notes.

    Raises RuntimeError if it cannot read the wheel.
    """
    done = _run(sys.executable, "-m", "pytest_cudalink.cli", "audit", wheel, "--format", "json")
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{wheel}: {done.stdout}{done.stderr}")
    (audit,) = json.loads(done.stdout)
    said = [(finding["severity"], f"{finding['place']} {finding['what']}") for finding in audit["findings"]]
    return tuple(text for kind, text in said if kind == "error"), tuple(text for kind, text in said if kind == "note")


def made(wheel: Path, prefix: Path, resolution: str, extra: str) -> bool:
    """Install a wheel with what it requires; False where no resolution has wheels."""
    if _run("uv", "venv", "-q", "--clear", "--python", sys.executable, prefix).returncode:
        return False
    named = f"{wheel}[{extra}]" if extra else wheel
    words = ("uv", "pip", "install", "-q", "--only-binary", ":all:", "--resolution", resolution, "--python", prefix)
    return not _run(*words, named).returncode


def loaded(wheel: Path, prefix: Path) -> dict[str, dict[str, str]]:
    """Load every library of a wheel in its environment; the error by file, and by imported module; empty for none."""
    driver = (sys.executable, "-m", "pytest_cudalink.cli", "driver", "run", "--version", _DRIVER)
    done = _run(*driver, "--", prefix / "bin" / "python", _LOADS, wheel.name)
    answer: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _lacks(text: str) -> Iterator[str]:
    """The library or function of CUDA's that an error names."""
    for groups in _MISSING.findall(text):
        for name in filter(None, groups):
            if _CUDAS.match(name) or _FUNCTIONS.match(name):
                yield name


def judge(wheel: Path) -> Verdict:
    """Audit a wheel, and load it in each environment that it allows."""
    metadata = _run("unzip", "-p", wheel, "*.dist-info/METADATA").stdout
    # extras that bring something of CUDA's, and are not for developers
    named = re.findall(r"^Requires-Dist: (?:nvidia|cu)\S.*extra == ['\"]([\w-]+)", metadata, re.MULTILINE)
    extras = [extra for extra in dict.fromkeys(named) if not extra.startswith(("test", "bench", "dev", "doc"))]
    extras += [",".join(extras)] if len(extras) > 1 else []
    missing: set[str] = set()
    otherwise: set[str] = set()
    environments: list[str] = []
    files = 0
    for resolution in ("highest", "lowest"):
        left: dict[str, str] | None = None  # files that loaded in no environment of this resolution
        for extra in ("", *extras):
            if left is not None and not any(any(_lacks(text)) for text in left.values()):
                break
            with tempfile.TemporaryDirectory(prefix="wheel-") as folder:
                if not made(wheel, Path(folder) / "env", resolution, extra):
                    continue
                answers = loaded(wheel, Path(folder) / "env")
            environments.append(f"{resolution} {extra}".strip())
            files = len(answers["files"])
            place = f"{folder}/env/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages/"
            fails = {name: text.replace(place, "") for name, text in answers["files"].items() if text}
            left = fails if left is None else {name: text for name, text in fails.items() if name in left}
            otherwise |= {f"import {name}: {text[:120]}" for name, text in answers["imports"].items() if text}
        for name, text in (left or {}).items():
            lacks = set(_lacks(text))
            missing |= lacks
            if not lacks:
                otherwise.add(f"{name.rpartition('/')[2]}: {text[-120:]}")
    if not environments:
        raise RuntimeError(f"{wheel.name}: no environment was made")
    lists = tuple(sorted(missing)), files, tuple(environments), tuple(sorted(otherwise))
    return Verdict(wheel.name, *audited(wheel), *lists)


def downloaded(name: str, folder: Path) -> Path:
    """Download a wheel: the release of wheels.toml, else the newest.

    Raises RuntimeError if the index has none for this Python.
    """
    row = rows().get(name)
    wanted = f"{name}=={row['wheel'].split('-')[1]}" if row else name
    words = ("pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder, wanted)
    done = _run(sys.executable, "-m", *words)
    if done.returncode:
        raise RuntimeError(f"{wanted}: {done.stderr.strip()[-300:]}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def rows() -> dict[str, dict[str, Any]]:
    """The verdicts that are kept."""
    wheels: dict[str, dict[str, Any]] = tomllib.loads(DATA.read_text(encoding="utf-8"))["wheels"]
    return wheels


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="distributions (default: those of wheels.toml)")
    parser.add_argument("--save", action="store_true", help="write the verdicts to wheels.toml")
    options = parser.parse_args(arguments)
    os.environ.pop("LD_LIBRARY_PATH", None)
    date, wrong, tried = dt.datetime.now(tz=dt.UTC).date(), 0, 0
    for name in options.names or rows():
        with tempfile.TemporaryDirectory(prefix="wheel-") as folder:
            try:
                verdict = judge(downloaded(name, Path(folder)))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"not judged: {error}", flush=True)
                wrong += 1
                continue
        tried += 1
        wrong += not verdict.agrees
        print(f"{'agreed' if verdict.agrees else 'DISAGREES'}: {verdict}", flush=True)
        if options.save and verdict.agrees:
            head, *kept = DATA.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in kept if not line.startswith(f"{name} = ")]
            DATA.write_text("".join([head, *kept, verdict.row(name, date)]), encoding="utf-8")
    print(f"{tried} wheels, {wrong} not judged or judged wrongly")
    return 1 if wrong or not tried else 0


if __name__ == "__main__":
    sys.exit(main())

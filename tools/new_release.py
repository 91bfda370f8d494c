"""Bring a CUDA release into the tables of the checkout: ``nox -s new-release -- 13.6``. RELEASING.md has the steps.

Each part is a process, because a part reads what the one before it wrote. All read wheels on the package index, by
ranges where that is enough, and toolchains; none needs a GPU. Where the checkout has the release already, the parts
write what is there, or what an update of the release changed. At the end stands what a person must decide.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from pytest_cudalink import toolchains
from pytest_cudalink.toolchains import Toolchain
from pytest_cudalink.versions import CudaVersion

ROOT: Final = Path(__file__).parent.parent
DATA: Final = ROOT / "pytest_cudalink" / "data"
#: Files whose comments name the newest release that they were read off.
_NAMES_NEWEST: Final = ("architectures.toml", "device_code.toml", "emulator/images.toml")


def _key(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def _table(name: str) -> dict[str, Any]:
    return tomllib.loads((DATA / name).read_text(encoding="utf-8"))


def _rows(name: str, header: str, rows: dict[str, str], key: Callable[[str], Any]) -> None:
    """Write rows into a table of a data file, by key, in order; comments and other tables stay."""
    file = DATA / name
    before, head, rest = file.read_text(encoding="utf-8").partition(f"\n{header}\n")
    body, blank, after = rest.partition("\n\n")
    by_key = {line.partition(" = ")[0]: line for line in body.rstrip("\n").split("\n")} | rows
    lines = [by_key[name] for name in sorted(by_key, key=lambda name: key(name.strip('"')))]
    file.write_text(f"{before}{head}{chr(10).join(lines)}{blank or chr(10)}{after}", encoding="utf-8")


def _previous(release: str) -> str:
    """The newest release that the tables knew before this one."""
    known: list[str] = [*_table("releases.toml")["releases"]]
    return max((earlier for earlier in known if _key(earlier) < _key(release)), key=_key)


def _chains() -> list[Toolchain]:
    """The toolchain of each release, fetched where it is missing, oldest first."""
    return [toolchains.add(release) for release in toolchains.releases()]


# --- the parts; each returns what a person must decide


def pins(release: str) -> list[str]:
    """Write what cuda-toolkit and NVIDIA's packages require, and the wheels of the toolchain with their hashes."""
    from . import make_requires, make_toolchains, make_toolkit_extras

    before = _table("toolkit_extras.toml")["versions"]
    make_toolkit_extras.main([])
    versions = _table("toolkit_extras.toml")["versions"]
    own = [version for version in versions if version.startswith(f"{release}.")]
    if not own:
        known = max(versions, key=_key)
        sys.exit(f"the package index has no cuda-toolkit {release}; its newest is {known}; check the number")
    make_requires.main([])
    make_toolchains.write(release)
    older = [version for version in before if not version.startswith(f"{release}.")][-1]
    decisions = [
        f"toolkit_extras.toml: [{extra}] of cuda-toolkit {own[-1]} is new and requires {', '.join(lines)}: "
        "does a library of it belong into cuda_libraries.toml, tools/make_exports.py or the guard rails?"
        for extra, lines in versions[own[-1]].items()
        if extra not in versions[older]
    ]
    return decisions + [
        f"toolkit_extras.toml: cuda-toolkit {own[-1]} no longer has [{extra}]: does a page or a cell ask for it?"
        for extra in versions[older]
        if extra not in versions[own[-1]]
    ]


def facts(release: str) -> list[str]:
    """Write what the release's NVRTC says of itself: PTX ISA, NVVM IR, LTO-IR and architectures; then names.py."""
    from . import make_names
    from .nvrtc_facts import facts_of

    facts = facts_of(toolchains.add(release).library("nvrtc"))
    previous = _previous(release)
    decisions = []
    known = _table("releases.toml")["releases"]
    driver = known.get(release, {}).get("driver")
    if driver is None:
        branch = int(known[previous]["driver"].partition(".")[0]) + 5
        driver = f"{branch}.10.01"
        decisions.append(
            f"releases.toml: driver {driver} is the branch that follows in order: which one do the Release Notes name "
            f'for CUDA {release} (table "CUDA Toolkit and Corresponding Driver Versions")?'
        )
    row = f'{{ driver = "{driver}", ptx-isa = {list(facts.ptx_isa)}, nvvm-ir = {list(facts.nvvm_ir)} }}'
    _rows("releases.toml", "[releases]", {f'"{release}"': f'"{release}" = {row}'}, _key)
    formats = _table("device_code.toml")["ltoir-format"]
    if str(facts.ltoir_format) not in formats:
        new = {str(facts.ltoir_format): f'{facts.ltoir_format} = "{release}"'}
        _rows("device_code.toml", "[ltoir-format]", new, int)
    decisions += _architectures(release, facts.architectures)
    decisions += _osabi(release, facts.osabi)
    for name in _NAMES_NEWEST:
        text = (DATA / name).read_text(encoding="utf-8")
        said = re.sub(rf"(?m)^(#.* to ){re.escape(previous)}\b", rf"\g<1>{release}", text)
        (DATA / name).write_text(said, encoding="utf-8")
    make_names.main()
    return decisions


def _architectures(release: str, letters_of: dict[int, str]) -> list[str]:
    """Write the rows of the architectures that came or went with a release."""
    known = _table("architectures.toml")["architectures"]
    rows, decisions = {}, []
    for number, letters in letters_of.items():
        suffixes = f', suffixes = "{letters}"' if letters else ""
        if str(number) not in known:
            rows[str(number)] = f'{number} = {{ since = "{release}"{suffixes} }}'
            decisions.append(
                f"architectures.toml: sm_{number} is new: which GPUs have it (gpus.toml), is it of Tegra "
                "(device_code.toml), and is it worth an emulated device (emulator/devices.toml)?"
            )
        elif known[str(number)].get("suffixes", "") != letters:
            said = known[str(number)].get("suffixes", "")
            decisions.append(f'architectures.toml: sm_{number} has suffixes "{said}"; NVRTC compiles for "{letters}"')
    for number, row in known.items():
        if int(number) not in letters_of and _key(row.get("dropped", "999")) > _key(release) >= _key(row["since"]):
            parts = [f"{key} = {value!r}".replace("'", '"') for key, value in (row | {"dropped": release}).items()]
            rows[number] = f"{number} = {{ {', '.join(parts)} }}"
            decisions.append(
                f"architectures.toml: NVRTC {release} no longer compiles for sm_{number}: was it renamed, and which "
                "driver is the last for it (device_code.toml, dropped-since)?"
            )
    _rows("architectures.toml", "[architectures]", rows, int)
    return decisions


def _osabi(release: str, numbers: dict[int, int]) -> list[str]:
    """Return a sentence if cubins have a header that no driver of the table takes."""
    known = [entry for entry in _table("emulator/images.toml")["elf"] if _key(entry["since"]) <= _key(release)]
    wrong = sorted(
        f"sm_{arch}: {osabi}"
        for arch, osabi in numbers.items()
        if not any(entry["osabi"] == osabi and entry["from-arch"] <= arch for entry in known)
    )
    if not wrong:
        return []
    return [f"emulator/images.toml: cubins of {release} have an EI_OSABI that the table lacks ({', '.join(wrong)})"]


def exports(release: str) -> list[str]:
    """Write what the libraries of the release export, read from the wheels that the tables lack."""
    from . import make_exports

    decisions = ["data/exports: a wheel could not be read; its reason stands above"] if make_exports.main([]) else []
    for stem in make_exports.LIBRARIES:
        majors = json.loads((DATA / "exports" / f"{stem}.json").read_text(encoding="utf-8"))["majors"]
        content = majors.get(release.partition(".")[0])
        wheels = content["wheels"].get(release, []) if content else []
        if not wheels:
            decisions.append(f"data/exports/{stem}.json has no wheel of {release}: was its package renamed or dropped?")
            continue
        gone = [
            name for change in content["changes"] if change["wheel"] in wheels for name in change.get("removed", ())
        ]
        if gone:
            decisions.append(
                f"data/exports/{stem}.json: {release} no longer exports {', '.join(gone[:5])}"
                f"{f' and {len(gone) - 5} more' if len(gone) > 5 else ''}: is that an entry for known_bad.toml?"
            )
    return decisions


def entry_points(release: str) -> list[str]:
    """Write the driver's functions, enumerators and documented errors, and the functions of NVML, from headers."""
    from . import make_enums, make_functions, make_nvml, make_returns

    folders = [chain.path for chain in _chains()]
    make_functions.write(folders)
    make_enums.write(folders)
    make_returns.write(toolchains.find(release).path)
    pin = _table("toolkit_extras.toml")["versions"]
    (wanted,) = [pin[version]["nvml"] for version in pin if version.startswith(f"{release}.")][-1]
    with tempfile.TemporaryDirectory() as folder:
        install = ("pip", "install", "-q", "--no-deps", "--target", folder, wanted)
        subprocess.run(["uv", *install], check=True)  # noqa: S607
        (header,) = Path(folder).rglob("nvml.h")
        make_nvml.add(release, header)
    nvml = [name for name, (since, *_) in _table("emulator/nvml_names.toml")["functions"].items() if since == release]
    driver = [name for name in _table("emulator/functions.toml")["symbols"].get(release, []) if not name.endswith("sz")]
    return [
        f"emulator/{file}: {release} has {len(names)} new functions, which the emulated library exports and does not "
        f"perform: {', '.join(names[:8])}{', …' if len(names) > 8 else ''}; is one of them worth more?"
        for file, names in (("functions.toml", driver), ("nvml_names.toml", nvml))
        if names
    ]


def archives(_release: str) -> list[str]:
    """Write which nvJitLink links which libcudadevrt.a."""
    from . import make_cudadevrt

    return [
        f"cudadevrt.toml: the code depends on the architecture: {problem}"
        for problem in make_cudadevrt.write(_chains())
    ]


def atlas(release: str) -> list[str]:
    """Measure what the release links and makes, for the atlas."""
    from pytest_cudalink.compat.atlas import atlas_of

    from . import atlas_differences, make_atlas

    make_atlas.main(["--new", release])
    loaded = atlas_of(json.loads(make_atlas.FILE.read_text(encoding="utf-8")))
    unexplained = [clash for clash in atlas_differences.contradictions(loaded) if clash.reason is None]
    answers = [
        answer
        for question, answer in make_atlas.answers_of(loaded).items()
        if release in (question.producer, question.consumer)
    ]
    asked = f"atlas.json: what only a GPU can say of {release} has the text {make_atlas.NOT_ASKED.text!r}"
    tile = f"tests/data/make_artifacts.py makes no Tile IR bytecode {release}, which tileiras {release} was not asked"
    return [
        *[f"{asked}: is there a machine for `python -m tools.atlas_on_gpu`?"] * (make_atlas.NOT_ASKED in answers),
        *[f"atlas.json: {tile}: which cuda-tile writes it?"] * (make_atlas.NO_BYTECODE in answers),
        *(f"contradictions.toml: {contradiction}: why does the rule stay?" for contradiction in unexplained),
    ]


def texts(release: str) -> list[str]:
    """Write compat.json; returns the pages, tests and settings that name the release before."""
    from . import export_json

    export_json.main()
    previous = re.escape(_previous(release))
    pattern = re.compile(rf"(\b12\.0 to |\bCUDA |==|-|\"){previous}\b")
    command = ("git", "ls-files")
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()
    kept = (
        "pytest_cudalink/data/",
        "matrices/",
        "docs/hardware/",
        "docs/findings/",
        "tests/data/",
        "campaigns/conformance",
    )
    hits = []
    for name in listed:
        if name.endswith((".md", ".py", ".toml", ".c", ".h")) and not name.startswith(kept) and (ROOT / name).is_file():
            text = (ROOT / name).read_text(encoding="utf-8")
            numbers = [str(at) for at, line in enumerate(text.splitlines(), 1) if pattern.search(line)]
            hits += [f"{name}:{','.join(numbers)}"] if numbers else []
    first = f"texts: these lines name {_previous(release)}; which of them mean the newest release?"
    return [first, *hits] if hits else []


#: In their order; each reads what those before it wrote.
PARTS: Final[dict[str, Callable[[str], list[str]]]] = {
    "pins": pins,
    "facts": facts,
    "exports": exports,
    "entry-points": entry_points,
    "archives": archives,
    "atlas": atlas,
    "texts": texts,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts, and print what a person must decide; returns the exit code."""
    parser = argparse.ArgumentParser(prog="nox -s new-release --", description=__doc__.partition("\n")[0])
    parser.add_argument("release", help="such as 13.6")
    parser.add_argument("--dry-run", action="store_true", help="list what a new major would break, with invented data")
    parser.add_argument("--only", action="append", choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}")
    options = parser.parse_args(arguments)
    try:
        release = str(CudaVersion.parse(options.release))
        if options.dry_run and release in _table("releases.toml")["releases"]:
            parser.error(
                f"CUDA {release} is in the tables; --dry-run expects a release that does not exist, such as 14.0"
            )
    except ValueError as error:
        parser.error(str(error))
    if options.dry_run:
        from .new_major import main as list_breaks

        return list_breaks(release)
    if options.only and len(options.only) == 1:
        with contextlib.redirect_stdout(sys.stderr):
            decisions = PARTS[options.only[0]](release)
        sys.stdout.writelines(f"{line}\n" for line in decisions)
        return 0
    decisions = []
    for part in options.only or PARTS:
        sys.stderr.write(f"{part}\n")
        command = [sys.executable, "-m", "tools.new_release", release, "--only", part]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            return done.returncode
        decisions += done.stdout.splitlines()
    sys.stdout.write("\n".join(["A person must decide:", *(f"- {decision}" for decision in decisions), ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""``cudalink compat``."""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import Any, Final

from ..report.safe_text import line as safe
from .completion import offer
from .names import add_verbs, hint

__all__ = ["DESCRIPTION", "configure", "run"]

DESCRIPTION: Final = (
    "What is known of CUDA releases. exports: which libraries, releases and wheels have a symbol. Exit code 1 if a "
    "symbol is unknown. known-bad: which combinations of versions are known to fail. Exit code 1 if the given or "
    "installed versions meet one."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verbs."""
    verbs = add_verbs(parser)
    exports = verbs.add_parser("exports", help="show which libraries, releases and wheels have a symbol")
    symbols = exports.add_argument("symbols", nargs="+", metavar="SYMBOL", help="such as nvJitLinkVersion")
    offer(symbols, lambda _: _symbols())
    exports.add_argument("--json", action="store_true", help="print JSON")
    bad = verbs.add_parser("known-bad", help="show the combinations of versions that are known to fail")
    versions = bad.add_argument(
        "versions", nargs="*", metavar="NAME==VERSION", help="only those that these versions meet; default: every entry"
    )
    offer(versions, lambda _: (f"{name}==" for name in sorted(_packages())))
    bad.add_argument("--installed", action="store_true", help="only those that the installed versions meet")
    bad.add_argument("--arch", metavar="ARCH", help="the GPU architecture, such as sm_120")
    bad.add_argument("--driver", metavar="RELEASE", help="the release of the driver, such as 580.65.06")
    bad.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Run one verb; returns its exit code."""
    return {"exports": _exports, "known-bad": _known_bad}[options.verb](options)


def _exports(options: argparse.Namespace) -> int:
    found = {symbol: _rows(symbol) for symbol in options.symbols}
    if options.json:
        sys.stdout.write(json.dumps([{"symbol": name, "found": rows} for name, rows in found.items()], indent=2) + "\n")
    for symbol, rows in found.items():
        if not rows:
            sys.stderr.write(f"cudalink compat: no known CUDA library exports {safe(symbol)}{_hint(symbol)}\n")
        elif not options.json:
            sys.stdout.write("".join(f"{line}\n" for line in (symbol, *map(_line, rows))))
    return 0 if all(found.values()) else 1


def _known_bad(options: argparse.Namespace) -> int:
    from ..compat import known_bad
    from ..compat.wheels import all_versions

    if wrong := _wrong(options):
        sys.stderr.write(f"cudalink compat: {safe(wrong)}\n")
        return 2
    versions = all_versions() if options.installed else {}
    for text in options.versions:
        name, _, version = text.partition("==")
        versions[name.strip()] = version.strip()
    asked = options.installed or bool(options.versions)
    found = known_bad.known_bad(versions, arch=options.arch, driver=options.driver) if asked else known_bad.entries()
    if options.json:
        sys.stdout.write(json.dumps([one.as_data() for one in found], indent=2) + "\n")
    else:
        for one in found:
            unknown = one.open_conditions(arch=options.arch, driver=options.driver)
            only = f"  only   {', '.join(unknown)}\n" if unknown else ""
            sys.stdout.write(f"{one.text}\n{only}  do     {one.advice}\n")
    return 1 if asked and found else 0


def _wrong(options: argparse.Namespace) -> str:
    """Return what is wrong with the names and versions of ``known-bad``; empty if nothing is."""
    from packaging.utils import canonicalize_name
    from packaging.version import InvalidVersion, Version

    known = sorted(_packages())
    for text in options.versions:
        name, _, version = (part.strip() for part in text.partition("=="))
        if not (name and version):
            return f"the version is {text!r}; expected NAME==VERSION; write one such as cuda-core==1.0.0"
        if canonicalize_name(name) not in known:
            return f"the name in {text!r} is in no entry; expected one that entries name{hint(name, known)}"
        try:
            Version(version)
        except InvalidVersion:
            return f"the version in {text!r} is {version!r}; expected one such as 1.0.0; correct it"
    if options.arch and not re.fullmatch(r"sm_\d+[af]?", options.arch, re.ASCII):
        return f"--arch is {options.arch!r}; expected an architecture such as sm_120; correct it"
    if options.driver and not re.fullmatch(r"\d+(\.\d+)*", options.driver, re.ASCII):
        return f"--driver is {options.driver!r}; expected a release such as 580.65.06; correct it"
    return ""


def _packages() -> set[str]:
    """Return the distributions and components that entries name."""
    from ..compat import known_bad

    parts = known_bad.components()
    named = {
        name for one in known_bad.entries() for name in (*one.versions, *one.newer, *one.newer.values(), *one.unless)
    }
    return {*named, *parts, *(wheel for wheels in parts.values() for wheel in wheels)}


def _rows(symbol: str) -> list[dict[str, Any]]:
    """Every library and major that exports a symbol."""
    from ..compat import exports

    rows = []
    for stem in exports.libraries():
        for major, soname in exports.sonames(stem).items():
            since = exports.since(stem, major, symbol)
            if since is None:
                continue
            until = exports.until(stem, major, symbol)
            having = [one for one in exports.releases(stem, major) if exports.exported(stem, one, symbol)]
            rows.append(
                {
                    "library": stem,
                    "cuda": major,
                    "soname": soname,
                    "since": str(since),
                    "until": str(until) if until else None,
                    "releases": list(map(str, having)),
                    "distribution": exports.distributions(stem).get(major),
                    "wheel": exports.first_wheel(stem, major, symbol),
                    "requirement": _requirement(stem, major, symbol),
                }
            )
    return rows


def _line(row: dict[str, Any]) -> str:
    gone = f", gone in {row['until']}" if row["until"] else ""
    write = f"; {row['requirement']}" if row["requirement"] else ""
    return f"  {row['soname']} of CUDA {row['cuda']}: since {row['since']}{gone}{write}"


def _requirement(stem: str, major: int, symbol: str) -> str | None:
    """The requirement on the wheels that have a symbol: from the first one, below the next major or the first without.

    None for the driver's library, which comes in no wheel.
    """
    from ..compat import exports

    first, until = exports.first_wheel(stem, major, symbol), exports.until(stem, major, symbol)
    if first is None:
        return None
    wheels = [wheel for release in exports.releases(stem, major) for wheel in exports.wheel_versions(stem, release)]
    without = exports.wheel_versions(stem, until)[:1] if until else ()
    below = without[0] if without else max(int(wheel.partition(".")[0]) for wheel in wheels) + 1
    return f"{exports.distributions(stem)[major]}>={first},<{below}"


def _hint(symbol: str) -> str:
    import difflib

    near = difflib.get_close_matches(symbol, _symbols(), 3, cutoff=0.8)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _symbols() -> list[str]:
    """Return every symbol of every known library."""
    from ..compat import exports

    names = {
        name
        for stem in exports.libraries()
        for major in exports.sonames(stem)
        for release in exports.releases(stem, major)
        for name in exports.symbols(stem, release)
    }
    return sorted(names)

"""Directives that print what is known of the exports of CUDA libraries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from cudalink_tables import add_directives, table, words
from docutils import nodes
from sphinx.application import Sphinx

from pytest_cudalink.compat import exports, known_bad

#: Names of a change that are shown; the others are counted.
SHOWN = 4


def majors() -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Every library in every major, as the data has it."""
    for stem in exports.libraries():
        if exports.distributions(stem):
            content = json.loads((exports.DATA / f"{stem}.json").read_text(encoding="utf-8"))
            for major, exported in content["majors"].items():
                yield stem, int(major), exported


def release_of(exported: dict[str, Any], wheel: str) -> str:
    """The first release that has a wheel."""
    return next(release for release, versions in exported["wheels"].items() if wheel in versions)


def some(names: list[str]) -> nodes.paragraph:
    """A few names, and how many more there are."""
    result = words(names[:SHOWN])
    if len(names) > SHOWN:
        result += nodes.Text(f" and {len(names) - SHOWN} more")
    return result


def exports_table() -> list[nodes.Node]:
    """Every library: its packages, SONAMEs, and how many symbols it exports."""
    rows = []
    for stem in exports.libraries():
        for major, soname in exports.sonames(stem).items():
            known = exports.releases(stem, major)
            counts = [len(exports.symbols(stem, release)) for release in (known[0], known[-1])]
            name = exports.distributions(stem).get(major, "")
            span = f"{known[0]} to {known[-1]}"
            rows.append([words([soname]), words([name]), span, f"{counts[0]} to {counts[1]}"])
    return [table(["library", "package", "releases", "C symbols in the first and last"], rows)]


def known_bad_table() -> list[nodes.Node]:
    """Every known-bad combination."""
    rows = []
    for entry in known_bad.entries():
        threads = nodes.paragraph()
        for thread, address in zip(entry.threads, entry.links, strict=True):
            threads += [
                *([nodes.Text(", ")] if threads.children else []),
                nodes.reference("", thread, refuri=address),
            ]
        rows.append([entry.title, entry.happens, threads, entry.seen, words([entry.test]) if entry.test else ""])
    return [table(["combination", "what happens", "threads", "seen", "test"], rows)]


def vanished_table() -> list[nodes.Node]:
    """Symbols that a library lost within a major."""
    rows = [
        [words([exports.sonames(stem)[major]]), release_of(exported, change["wheel"]), some(change["removed"])]
        for stem, major, exported in majors()
        for change in exported["changes"]
        if "removed" in change
    ]
    return [table(["library", "gone in", "symbols"], rows)]


def updates_table() -> list[nodes.Node]:
    """Symbols that came or went with an update: not with the first wheel of a release."""
    rows: list[list[str | nodes.Node]] = []
    for stem, major, exported in majors():
        for change in exported["changes"]:
            release = release_of(exported, change["wheel"])
            if change["wheel"] == exported["wheels"][release][0]:
                continue
            for key in ("added", "removed"):
                if key in change:
                    names = change[key]
                    rows.append([words([exports.sonames(stem)[major]]), release, change["wheel"], key, some(names)])
    return [table(["library", "release", "wheel", "", "symbols"], rows)]


def other_wheels_table() -> list[nodes.Node]:
    """Wheels that no cuda-toolkit requires."""
    rows: dict[str, list[str]] = {}
    for _, _, exported in majors():
        rows.setdefault(exported["distribution"], exported["inferred"])
    return [table(["package", "versions"], [[words([name]), words(v)] for name, v in rows.items() if v])]


def machines_table() -> list[nodes.Node]:
    """What the wheels for aarch64 export more and less."""
    rows = [
        [words([exports.sonames(stem)[major]]), other["wheel"], key, some(other[key])]
        for stem, major, exported in majors()
        for other in exported["aarch64"]
        for key in ("added", "removed")
        if key in other
    ]
    return [table(["library", "wheel", "on aarch64", "symbols"], rows)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    add_directives(
        app, exports_table, known_bad_table, vanished_table, updates_table, other_wheels_table, machines_table
    )
    return {"parallel_read_safe": True}

"""``cudalink toolchain``."""

import argparse
from collections.abc import Iterable
from typing import Final

from .. import toolchains
from ..base.progress import progress
from ..base.safe_text import complain, say
from .arguments import add_verbs, offer

DESCRIPTION: Final = (
    "Fetch nvJitLink, NVRTC, cudart and headers of any CUDA release from 12.0 on, from NVIDIA's wheels into a cache: "
    "$CUDALINK_CACHE, or the user's cache folder. Hashes are checked, and several runners can use the cache at once."
)

GUESSED: Final = dict.fromkeys(("download", "get", "install"), "to fetch CUDA 13.0, type: cudalink toolchain add 13.0")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verbs."""
    verbs = add_verbs(parser)
    add = verbs.add_parser("add", aliases=("fetch",), help="fetch releases that are not in the cache")
    versions = add.add_argument("versions", nargs="+", metavar="VERSION", help="fetch a release: 13.0, or latest")
    offer(versions, lambda _: ("latest", *toolchains.releases()))
    add.add_argument("--installer", choices=("uv", "pip"), help="fetch with this (default: uv if it is installed)")
    listing = verbs.add_parser("list", help="show the cache")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.add_argument("--all", action="store_true", help="also show the other releases that have wheels")
    remove = verbs.add_parser("remove", help="delete releases from the cache")
    offer(remove.add_argument("versions", nargs="+", metavar="VERSION", help="delete a release"), _in_cache)
    path = verbs.add_parser("path", help="print the folder of a release, or the file of a library")
    offer(path.add_argument("version", metavar="VERSION", help="name a release in the cache"), _in_cache)
    path.add_argument("--library", metavar="NAME", help="print the file of nvJitLink, nvrtc, cudart or another library")
    for verb in (add, path):
        verb.add_argument(
            "--layout",
            choices=("libs", "ctk"),
            default="libs" if verb is add else None,
            help="choose libraries and headers (libs), or a folder like an installed toolkit, with bin/, nvvm/ and "
            "version.json (ctk)",
        )


def _in_cache(_options: argparse.Namespace) -> Iterable[object]:
    """Return the releases in the cache, for a shell to complete."""
    return sorted({kit.version for kit in toolchains.installed()})


def run(options: argparse.Namespace) -> int:
    """Run one verb; exit code 1 if it fails."""
    verbs = {"add": _add, "fetch": _add, "list": _list, "remove": _remove, "path": _path}
    try:
        lines = verbs[options.verb](options)
    except toolchains.ToolchainError as error:
        complain(f"cudalink toolchain: {error}")
        return 1
    say("".join(f"{line}\n" for line in lines), end="")
    return 0


def _add(options: argparse.Namespace) -> list[str]:
    made = []
    for version in options.versions:
        with progress(f"fetching toolchain {version}") as step:
            made.append(toolchains.add(version, options.layout, options.installer, step.say))
    return [f"CUDA {kit.version}: {kit.path}" for kit in made]


def _list(options: argparse.Namespace) -> list[str]:
    kits = toolchains.installed()
    if options.json:
        import json

        rows = [
            {"version": str(kit.version), "layout": kit.layout, "path": str(kit.path), "packages": kit.packages}
            for kit in kits
        ]
        return [json.dumps(rows, indent=1)]
    lines = [f"{kit.version!s:<6}{kit.layout:<6}{kit.path}" for kit in kits]
    if options.all:
        there = {kit.version for kit in kits}
        others = [release for release in toolchains.releases() if release not in there]
        lines += [f"{release!s:<6}{'-':<6}cudalink toolchain add {release}" for release in others]
    return lines or [f"no toolchains in {toolchains.cache_root()}; cudalink toolchain add 13.0"]


def _remove(options: argparse.Namespace) -> list[str]:
    return [f"removed {path}" for version in options.versions for path in toolchains.remove(version)]


def _path(options: argparse.Namespace) -> list[str]:
    kit = toolchains.find(options.version, options.layout)
    return [str(kit.library(options.library) if options.library else kit.path)]

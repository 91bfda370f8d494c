"""``cudalink toolchain``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from ..plurals import counted
from ..progress import progress
from .completion import offer
from .names import add_verbs
from .paths import input_file, input_path, new_path, output_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..versions import CudaVersion

__all__ = ["DESCRIPTION", "configure", "in_cache", "run"]

DESCRIPTION: Final = (
    "The libraries of any CUDA release from 12.0 on (nvJitLink, NVRTC, cudart and headers), fetched from NVIDIA's "
    "wheels into a cache: $CUDALINK_CACHE, or the user's cache folder. Hashes are checked; parallel runners are safe."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verbs."""
    verbs = add_verbs(parser)
    add = verbs.add_parser("add", help="fetch releases that are not in the cache")
    offer(add.add_argument("versions", nargs="+", metavar="VERSION", help="such as 13.0, or latest"), _releases)
    add.add_argument("--installer", choices=("uv", "pip"), help="what downloads (default: uv if it is installed)")
    listing = verbs.add_parser("list", help="show the cache")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.add_argument("--all", action="store_true", help="also show the other releases that have wheels")
    remove = verbs.add_parser("remove", help="delete releases from the cache")
    offer(remove.add_argument("versions", nargs="+", metavar="VERSION"), in_cache)
    path = verbs.add_parser("path", help="print the folder of a release, or the file of a library")
    offer(path.add_argument("version", metavar="VERSION"), in_cache)
    path.add_argument("--library", metavar="NAME", help="such as nvJitLink, nvrtc or cudart")
    _configure_bundles(verbs)
    for verb in (add, path):
        verb.add_argument(
            "--layout",
            choices=("libs", "ctk"),
            default="libs" if verb is add else None,
            help="libs: libraries and headers; ctk: like an installed toolkit, with bin/, nvvm/ and version.json",
        )


def _configure_bundles(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verbs that make a bundle, and that check and install it."""
    bundle = verbs.add_parser(
        "bundle",
        help="collect all that `nox -s gpu` needs on a machine without a network",
        description="Download the wheels that `nox -s gpu` needs on a machine with a GPU and no network. Its Python "
        "and glibc may differ from this machine's. The bundle has a manifest with hashes, and unbundle.py, which "
        "installs it.",
    )
    bundle.add_argument(
        "out", metavar="OUT", type=new_path, help="new folder, or new file whose name ends in .tar; it must not exist"
    )
    ctk = bundle.add_argument(
        "--ctk",
        action="append",
        required=True,
        metavar="VERSION",
        help="CUDA release, such as 13.0; may be repeated; the first is installed",
    )
    offer(ctk, _releases)
    bundle.add_argument("--python", metavar="VERSION", help="Python of the machine (default: this one's version)")
    bundle.add_argument(
        "--platform", metavar="TAG", help="such as manylinux_2_28_x86_64, by the machine's glibc (default: 2.28)"
    )
    bundle.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="leave out a package that the machine has; may be repeated",
    )
    bundle.add_argument("--max-size", type=_size, metavar="SIZE", help="fail if the bundle is larger, such as 60MiB")
    bundle.add_argument("--volume-size", type=_size, metavar="SIZE", help="split into volumes of at most this size")
    bundle.add_argument(
        "--wheel",
        type=input_file("a wheel of pytest-cudalink"),
        metavar="FILE",
        help="the wheel of this project (default: built from the checkout, or fetched)",
    )
    unbundle = verbs.add_parser(
        "unbundle",
        help="check a bundle, join its volumes, install it without a network",
        description="Compare every file of a bundle with its manifest, then unpack or install it. The unbundle.py in "
        "the bundle does the same where pytest-cudalink is not installed.",
    )
    unbundle.add_argument(
        "source",
        metavar="SOURCE",
        type=input_path("a bundle, its .tar or the folder of its volumes"),
        help="bundle, .tar or folder of volumes",
    )
    unbundle.add_argument(
        "--to", type=output_folder, metavar="FOLDER", help="unpack a .tar or volumes into this folder"
    )
    unbundle.add_argument(
        "--venv", type=output_folder, metavar="FOLDER", help="make an environment from the bundle; replaces the folder"
    )
    unbundle.add_argument(
        "--cache", type=output_folder, metavar="FOLDER", help="with --venv: put the CUDA releases there, too"
    )


def _size(text: str) -> int:
    from ..toolchains import bundle

    try:
        return bundle.parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _releases(_options: argparse.Namespace) -> Iterable[object]:
    from .. import toolchains

    return ("latest", *toolchains.releases())


def in_cache(_options: argparse.Namespace) -> Iterable[object]:
    """Return the releases in the cache, for a shell to complete."""
    from .. import toolchains

    return sorted({one.version for one in toolchains.installed()})


def run(options: argparse.Namespace) -> int:
    """Run one verb; exit code 1 if it fails."""
    from .. import toolchains

    if options.verb == "unbundle":
        return _unbundle(options)
    verbs = {"add": _add, "list": _list, "remove": _remove, "path": _path, "bundle": _bundle}
    try:
        lines = verbs[options.verb](options)
    except toolchains.ToolchainError as error:
        sys.stderr.write(f"cudalink toolchain: {error}\n")
        return 1
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _add(options: argparse.Namespace) -> list[str]:
    from .. import toolchains

    made = []
    for version in options.versions:
        with progress(f"fetching toolchain {version}") as step:
            made.append(toolchains.add(version, options.layout, options.installer, step.say))
    return [f"CUDA {one.version}: {one.path}" for one in made]


def _list(options: argparse.Namespace) -> list[str]:
    from .. import toolchains

    found = toolchains.installed()
    if options.json:
        import json

        rows = [
            {"version": str(one.version), "layout": one.layout, "path": str(one.path), "packages": one.packages}
            for one in found
        ]
        return [json.dumps(rows, indent=1)]
    lines = [f"{one.version!s:<6}{one.layout:<6}{one.path}" for one in found]
    if options.all:
        there = {one.version for one in found}
        lines += [
            f"{release!s:<6}{'-':<6}cudalink toolchain add {release}"
            for release in toolchains.releases()
            if release not in there
        ]
    return lines or [f"no toolchains in {toolchains.cache_root()}; cudalink toolchain add 13.0"]


def _remove(options: argparse.Namespace) -> list[str]:
    from .. import toolchains

    return [f"removed {path}" for version in options.versions for path in toolchains.remove(version)]


def _path(options: argparse.Namespace) -> list[str]:
    from .. import toolchains

    found = toolchains.find(options.version, options.layout)
    return [str(found.library(options.library) if options.library else found.path)]


def _bundle(options: argparse.Namespace) -> list[str]:
    from .. import toolchains
    from ..toolchains import bundle

    releases = [max(toolchains.releases()) if one == "latest" else _release(one) for one in options.ctk]
    wanted = bundle.Wanted(
        tuple(releases),
        options.python or bundle.default_python(),
        options.platform or bundle.default_platform(),
        tuple(options.without),
        options.max_size,
        options.volume_size,
        options.wheel,
    )
    with progress(f"making the bundle {options.out}") as step:
        made = bundle.make(options.out, wanted, step.say)
    lines = [f"{made.path}: {counted(made.wheels, 'wheel')}, {made.size / bundle.MIB:.1f} MiB"]
    lines += [f"  volume {name}" for name in made.volumes]
    return lines + [f"  the machine must have {one}" for one in made.without]


def _release(text: str) -> CudaVersion:
    from .. import toolchains
    from ..versions import CudaVersion

    try:
        return CudaVersion.parse(text)
    except ValueError as error:
        raise toolchains.ToolchainError(str(error)) from error


def _unbundle(options: argparse.Namespace) -> int:
    from ..toolchains import unbundle

    given = [(f"--{name}", getattr(options, name)) for name in ("to", "venv", "cache")]
    return unbundle.main([str(options.source), *(str(word) for pair in given if pair[1] for word in pair)])

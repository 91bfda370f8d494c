"""``cudalink stubs``."""

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from ..base.compiler import CompilerError
from ..base.progress import progress
from ..base.safe_text import block, complain, say
from ..stubs import StubNotFoundError, c_source, catalog, cmake_dir, describe
from ..stubs.c_source import GeneratorError
from ..stubs.catalog import CatalogError
from .arguments import add_verbs, input_file, output_folder

DESCRIPTION: Final = (
    "Build lazy-loading CUDA stubs, and show which libraries they find. A wheel that links them instead of libcuda, "
    "libcudart and libnvrtc runs with CUDA 11, 12 and 13, and imports without CUDA."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--cmake-dir", action=_PrintCMakeDir, nargs=0, help="print the folder for -Dcudalink_stubs_DIR=, and stop"
    )
    actions = add_verbs(parser, "action")
    what = argparse.ArgumentParser(add_help=False)
    what.add_argument(
        "--libs", default="cuda,cudart,nvrtc", metavar="LIBS", help="take these libraries (default: cuda,cudart,nvrtc)"
    )
    what.add_argument(
        "--symbols",
        type=input_file("a file of names or prototypes"),
        metavar="FILE",
        help="export only these symbols: a file of names of the catalog, one per line, or a .toml file of prototypes",
    )
    make = argparse.ArgumentParser(add_help=False, parents=[what])
    make.add_argument("--prefix", default="stub", metavar="NAME", help="name them libNAME_cudart.so … (default: stub)")
    make.add_argument(
        "--headers", type=int, choices=(11, 12, 13), help="expect callers compiled with this CUDA major (default: any)"
    )
    make.add_argument("-o", "--output", type=output_folder, required=True, metavar="DIR", help="write to this folder")
    actions.add_parser("build", parents=[make], help="compile stub libraries into DIR")
    actions.add_parser("generate", parents=[make], help="write the C and assembler sources of the stubs to DIR")
    actions.add_parser("list", parents=[what], help="show what the stubs export")
    named = actions.add_parser("describe", help="show which real libraries the stubs find here")
    named.add_argument("stubs", nargs="*", default=["cuda", "cudart", "nvrtc"], help="name libraries or files")


class _PrintCMakeDir(argparse.Action):
    """Print the folder and stop, as --version does."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        say(f"{cmake_dir()}")
        parser.exit()


def run(options: argparse.Namespace) -> int:
    """Run one action; exit code 2 if it fails."""
    actions = {"build": _make, "generate": _make, "list": _list, "describe": _describe}
    try:
        lines = actions[options.action](options)
    except (CatalogError, CompilerError, GeneratorError, StubNotFoundError, OSError) as error:
        complain(f"cudalink stubs: {block(error)}")
        return 2
    say("".join(f"{line}\n" for line in lines), end="")
    return 0


def _names(options: argparse.Namespace) -> list[str]:
    """The libraries of ``--libs``, each once."""
    names = list(dict.fromkeys(filter(None, map(str.strip, options.libs.split(",")))))
    if not names:
        msg = f"--libs {options.libs!r} names no library; expected some of cuda,cudart,nvrtc; or leave it out"
        raise GeneratorError(msg)
    return names


def _make(options: argparse.Namespace) -> list[str]:
    names = _names(options)
    if options.action == "build":
        chosen = {"symbols": options.symbols, "prefix": options.prefix, "headers": options.headers}
        with progress(f"compiling stubs of {', '.join(names)}"):
            return [str(path) for path in c_source.build_stubs(names, options.output, **chosen)]
    known = catalog.load_catalog(options.symbols)
    stubs = c_source.generate(known, names, options.output, options.prefix, options.headers)
    return [str(path) for stub in stubs for path in (*stub.sources, stub.header)]


def _list(options: argparse.Namespace) -> list[str]:
    known = catalog.load_catalog(options.symbols)
    lines = []
    for name in _names(options):
        if name not in known.libraries:
            raise catalog.CatalogError(f"no library {name!r} in the catalog; expected {', '.join(known.libraries)}")
        for function in known.libraries[name].functions:
            until = f"to {function.until}" if function.until else ""
            since = f"since {function.since or '?'} {until}".rstrip()
            lines.append(f"{name:6} {function.symbol:46} {function.tier:8} {since}")
    return lines


def _hint(library: str) -> list[str]:
    """The variable to set if a wheel is installed in this environment, but not above the stub."""
    known = catalog.load_catalog().libraries.get(library)
    files = [Path(folder) / wheel for wheel in (known.wheels if known else ()) for folder in sys.path]
    installed = next((file.absolute() for file in files if file.is_file()), None)
    text = f"  installed, but not above the stub: CUDALINK_STUBS_{library.upper()}={installed} takes it"
    return [text] if installed else []


def _describe(options: argparse.Namespace) -> list[str]:
    lines = []
    for stub in options.stubs:
        library = describe(stub)
        version = f", CUDA {library.version}" if library.version else ""
        lines.append(f"{library.stub}: {library.file or 'no library'} ({library.why}{version})")
        if library.file is None:
            lines.append(f"  looked in: {library.looked}")
            lines += _hint(library.library)
        elif library.missing:
            lines.append(f"  degraded tiers: {', '.join(library.degraded)}; missing: {', '.join(library.missing)}")
    return lines

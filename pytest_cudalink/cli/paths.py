"""Paths on a command line, checked before the command begins: what is there, what is expected, what to do.

Each function returns a type for argparse, which names the option before the message and ends with exit code 2. A path
is looked at and not opened: `regular_files` opens it later, and refuses what has become a pipe or a device.
"""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

#: Stands for stdout where a file to write is expected.
STDOUT: Final = Path("-")


def wrong_file(path: Path, expected: str) -> str:
    """Return why a path cannot be read as a file, and what is expected; empty if it can be."""
    try:
        if stat.S_ISDIR(path.stat().st_mode):
            return f"is {path}, a folder; expected {expected}"
        if not path.is_file():
            return f"is {path}, a pipe or a device; expected {expected}; write it to a file first"
    except OSError as error:
        return f"is {path}: {error.strerror}; expected {expected}"
    return "" if os.access(path, os.R_OK) else f"is {path}, which you may not read; expected {expected}"


def input_file(expected: str, remedy: str = "correct the path") -> Callable[[str], Path]:
    """Return the type of an option that names a file to read.

    `expected`: what the file is, such as ``"a file of cells"``.
    `remedy`: what to do.
    """
    return _input(wrong_file, expected, remedy)


def input_path(expected: str, remedy: str = "correct the path") -> Callable[[str], Path]:
    """Return the type of an option that names a file or a folder to read.

    `expected`: what the path is, such as ``"a record file or a folder of record files"``.
    `remedy`: what to do.
    """
    return _input(_missing, expected, remedy)


def _missing(path: Path, expected: str) -> str:
    """Return why there is no file or folder, and what is expected; empty if there is one."""
    try:
        path.stat()
    except OSError as error:
        return f"is {path}: {error.strerror}; expected {expected}"
    return ""


def _input(wrong: Callable[[Path, str], str], expected: str, remedy: str) -> Callable[[str], Path]:
    """Return the type of an option whose path `wrong` finds nothing to say about."""

    def of(text: str) -> Path:
        path = _path(text, expected)
        if why := wrong(path, expected):
            msg = f"{why}; {remedy}"
            raise argparse.ArgumentTypeError(msg)
        return path

    return of


def output_file(text: str) -> Path:
    """Return the path of a file to write, or `STDOUT`; its folder may be missing."""
    path = _path(text, "a file to write")
    if path == STDOUT:
        return path
    if path.is_dir():
        msg = f"is {path}, a folder; expected a file to write; name a file in it"
        raise argparse.ArgumentTypeError(msg)
    try:
        if not stat.S_ISREG(path.stat().st_mode) and os.access(path, os.W_OK):
            return path  # a device or a pipe is not replaced: its folder may be closed, as /dev is
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        msg = f"is {path}: {error.strerror}; expected a file to write; name another"
        raise argparse.ArgumentTypeError(msg) from error
    _check_place(path, path.absolute().parent, "a file to write")
    return path


def output_folder(text: str) -> Path:
    """Return the path of a folder to write into, which may be missing."""
    path = _path(text, "a folder")
    _check_place(path, path.absolute(), "a folder to write into")
    return path


def _check_place(path: Path, folder: Path, expected: str) -> None:
    """Raise an error if a folder neither exists nor can be made, or cannot be written to."""
    try:
        there = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
        kind = there.stat().st_mode
    except OSError as error:
        msg = f"is {path}: {error.strerror}; expected {expected}; correct the path"
        raise argparse.ArgumentTypeError(msg) from error
    if not stat.S_ISDIR(kind):
        inside = "" if there == path.absolute() else f", inside of {there}"
        msg = f"is {path}{inside}, which is not a folder; expected {expected}; name another"
        raise argparse.ArgumentTypeError(msg)
    if not os.access(there, os.W_OK | os.X_OK):
        msg = f"is {path}; {there} cannot be written to; expected {expected}; name another"
        raise argparse.ArgumentTypeError(msg)


def any_path(text: str) -> Path:
    """Return the path of a file or folder to read; the command says what is wrong with one, and goes on with others."""
    return _path(text, "a path")


def _path(text: str, expected: str) -> Path:
    if not text or "\0" in text:
        msg = f"is {text!r}; expected {expected}; correct the path"
        raise argparse.ArgumentTypeError(msg)
    return Path(text)

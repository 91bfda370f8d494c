"""Reads from record files what the cells of a matrix touched when they last ran."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from ..report import records
from .selection import Touches

__all__ = ["read_touches"]

#: How lines begin that a selection does not need: most of a file.
_PASSED_OVER: Final = tuple(
    f'{{"event": "{name}"'.encode() for name in ("start", "link", "unsteered", "library", "violation", "verdict")
)
_TEST: Final = b'{"event": "test"'
_MOST_BYTES: Final = 64 << 20


def read_touches(folders: Iterable[Path]) -> dict[str, Touches]:
    """Return the newest run of each cell in folders, by the cell's name; a damaged file counts as unfinished.

    Raises
    ------
    OSError
        If a folder cannot be read.
    """
    found: dict[str, Touches] = {}
    for folder in folders:
        names = (
            [folder] if folder.is_file() else [Path(top, name) for top, _, files in os.walk(folder) for name in files]
        )
        for file in sorted(one for one in names if one.name.endswith(".jsonl")):
            name, touches = _read(file)
            if name not in found or touches.began >= found[name].began:
                found[name] = touches
    return found


def _read(file: Path) -> tuple[str, Touches]:
    try:
        with file.open("rb") as stream:
            lines = stream.readlines(_MOST_BYTES)
            # who ran a test is read without parsing: most of what a test's line has is of no interest
            workers = {line.split(b'"worker": ', 1)[-1].split(b",", 1)[0] for line in lines if line.startswith(_TEST)}
            recording = records.parse(line for line in lines if not line.startswith((*_PASSED_OVER, _TEST)))
    except (OSError, records.RecordError, TypeError, ValueError):
        return file.stem, Touches()
    run = recording.run
    if run is None:
        return file.stem, Touches()
    try:
        return str(run.cell or file.stem), _touches(recording, workers)
    except (TypeError, ValueError, AttributeError, KeyError):  # values of another type
        return str(run.cell or file.stem), Touches()


def _touches(recording: records.Recording, workers: set[bytes]) -> Touches:
    run, end = recording.run, recording.end
    assert run is not None
    files: dict[str, str] = {}
    for one in recording.touched:
        for test, names in one.files.items():
            for name in names:
                files.setdefault(str(name), str(test))
    wrote = {b"null" if one.worker is None else f'"{one.worker}"'.encode() for one in recording.touched}
    lost = recording.crashes or recording.truncated or any(one.lost for one in recording.touched)
    origin: Any = run.origin
    return Touches(
        commit=origin.get("commit"),
        dirty=origin.get("dirty"),
        in_ci=bool(origin.get("ci_url")),
        began=float(run.time),
        duration=float(end.duration) if end is not None else 0.0,
        exitstatus=end.exitstatus if end is not None else None,
        arguments=tuple(map(str, run.argv)),
        options=tuple(word for one in recording.touched[:1] for word in shlex.split(one.options)),
        files=files,
        is_complete=bool(wrote) and workers <= wrote and not lost,
        unknown=tuple(sorted({str(name) for one in recording.touched for name in one.unknown})),
        programs=tuple(sorted({str(name) for one in recording.touched for name in one.programs})),
    )

"""The record file: what is written is read back, also when it was cut, and the published schema is that of the code."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError

from pytest_cudalink.report import RecordError, Writer, events, read, records, wording

PUBLISHED = Path(__file__).parents[2] / "matrices" / "records.schema.json"

RUN = {
    "schema": 1,
    "run": "0" * 32,
    "cell": "ctk-13.0",
    "worker": None,
    "python": "3.11.9",
    "platform": "linux",
    "pytest": "9.2.0",
    "argv": ["-x"],
    "settings": {"backend": {"value": "auto", "source": "default"}},
    "versions": {"driver": {"requested": "13.0", "found": "13.0", "source": "cuDriverGetVersion", "kind": "emulated"}},
    "arch": {"requested": None, "found": "sm_90"},
    "facts": {},
}
TEST = {
    "nodeid": "test_a.py::test",
    "worker": "gw0",
    "attempt": 1,
    "outcome": "passed",
    "duration": 0.5,
    "reason": "",
    "longrepr": "",
    "backends": {"driver": 2},
    "links": 2,
    "violations": 0,
    "documented": None,
    "missing": None,
    "subtests": [{"description": "i=1", "outcome": "passed"}],
    "cause": {
        "kind": "skew",
        "what": "CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222): cuModuleLoadData of PTX ISA 9.0",
        "why": "a driver of CUDA 12.9 reads PTX up to ISA 8.8",
        "fix": ["compile for this driver: pip install 'cuda-toolkit[nvrtc]==12.9.*'"],
    },
}
EVENTS = {
    "run": RUN,
    "found": {
        "worker": "gw0",
        "versions": {"driver": {"requested": None, "found": "13.0", "source": "emulated", "kind": "emulated"}},
        "arch": {"requested": None, "found": "sm_90"},
    },
    "collected": {"tests": {"test_a.py": ["test"]}},
    "start": {"nodeid": "test_a.py::test", "worker": "gw0", "attempt": 1},
    "link": {
        "nodeid": None,
        "worker": None,
        "target": "bundled",
        "backend": "driver",
        "inputs": [{"kind": "ptx", "name": "a.ptx", "producer": "13.0"}],
        "versions": {"driver": "13.0", "nvjitlink": None},
        "duration": 0.001,
        "result": "ok",
        "message": "",
    },
    "unsteered": {
        "nodeid": None,
        "worker": "gw0",
        "via": "cuda.bindings.driver",
        "call": "cuLinkComplete",
        "where": "helper.py:12",
        "backend": "driver",
        "result": "ok",
        "forced": None,
    },
    "library": {
        "nodeid": "test_a.py::test",
        "worker": "gw0",
        "during": "call",
        "name": "libcudart",
        "soname": "libcudart.so.13",
        "path": "/usr/local/cuda/lib64/libcudart.so.13",
        "real_path": "/usr/local/cuda-13.0/lib64/libcudart.so.13.0.96",
        "place": "system",
        "owner": "",
        "version": "13.0",
        "witness": "its file name",
        "for_whom": "opened at helper.py:12",
    },
    "violation": {"nodeid": "test_a.py::test", "text": "freed too early", "address": 4096},
    "verdict": {
        "nodeid": None,
        "status": "incompatible",
        "rule": "same-major",
        "message": "no",
        "fix": "install",
        "items": ["nvrtc"],
    },
    "test": TEST,
    "crash": {
        "nodeid": "test_a.py::test",
        "worker": "gw0",
        "signal": "SIGSEGV",
        "exitcode": None,
        "last_events": ["cuLinkCreate"],
        "frames": ["Fatal Python error: Segmentation fault"],
    },
    "sticky": {
        "nodeid": "test_a.py::test",
        "worker": None,
        "code": 700,
        "error": "CUDA_ERROR_ILLEGAL_ADDRESS (700)",
        "after": 2,
    },
    "end": {
        "exitstatus": 1,
        "duration": 1.5,
        "counts": {"passed": 1},
        "failing": ["nothing was linked"],
        "unlinked_modules": 2,
    },
}
OPTIONAL = {
    "run": {"axes", "hidden", "origin"},
    "test": {"refused", "unsteered", "cause"},
    "link": {"worker"},
    "verdict": {"otherwise"},
    "crash": {"signal", "exitcode", "frames"},
    "end": {"failing", "unlinked_modules"},
}


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    """The published schema, itself checked."""
    Draft202012Validator.check_schema(records.schema())
    return Draft202012Validator(records.schema())


@pytest.fixture
def written(tmp_path):
    """A file with every event."""
    path = tmp_path / "folder" / "run.jsonl"
    with Writer(path) as writer:
        for event, content in EVENTS.items():
            writer.write(event, **content)
    return path


def test_round_trip(written) -> None:
    """Every event comes back with its fields."""
    found = read(written)

    assert not found.truncated
    kinds = {
        "run": found.run,
        "found": found.found,
        "collected": found.collected,
        "start": found.starts[0],
        "link": found.links[0],
        "unsteered": found.unsteered[0],
        "library": found.libraries[0],
        "verdict": found.verdicts[0],
        "test": found.tests[0],
        "crash": found.crashes[0],
        "end": found.end,
    }
    for event, value in kinds.items():
        assert {name: getattr(value, name) for name in EVENTS[event]} == EVENTS[event]
        assert value.time > 1e9
    assert found.violations[0].details == {"address": 4096}
    assert found.unfinished == []


def test_what_is_written_follows_the_schema(written, validator) -> None:
    """The lines of every event are valid."""
    for line in written.read_text().splitlines():
        validator.validate(json.loads(line))


def test_schema_is_published(validator) -> None:
    """The published file is the schema of the code: ``python -m pytest_cudalink.report.schema`` writes it."""
    assert PUBLISHED.read_text(encoding="utf-8") == json.dumps(validator.schema, indent=2) + "\n"


@pytest.mark.parametrize("event", EVENTS)
def test_schema_and_dataclass_name_the_same_keys(event, validator) -> None:
    """The schema has exactly the keys of the dataclass, and refuses an event without them."""
    kind = getattr(records, event.capitalize())
    names = {entry.name for entry in fields(kind)} - {"time", "details"}
    assert set(validator.schema["$defs"][event]["properties"]) == names
    with pytest.raises(ValidationError):
        validator.validate({"event": event, "time": 1.0})


@pytest.mark.parametrize("event", EVENTS)
def test_dataclass_has_the_types_of_the_events(event) -> None:
    """An attribute has the type of its key, in the same order, after the time."""
    kind = getattr(records, event.capitalize())
    own = {"time": float} | get_type_hints(events.EVENTS[event])
    if event == "violation":
        own["details"] = dict[str, Any]
    assert list(get_type_hints(kind).items()) == list(own.items())


@pytest.mark.parametrize("event", EVENTS)
def test_schema_requires_each_key_that_is_not_optional(event, validator) -> None:
    """An event without one of its keys is refused, except for the keys that older versions did not write."""
    whole = {"event": event, "time": 1.0, **EVENTS[event], "otherwise": ""}
    known = validator.schema["$defs"][event]["properties"]
    optional = {key for key in known if validator.is_valid({name: whole[name] for name in whole if name != key})}
    assert optional == OPTIONAL.get(event, set())


@pytest.mark.parametrize(
    ("event", "change"),
    [
        ("test", {"outcome": "okay"}),
        ("test", {"longrepr": "x" * 4001}),
        ("test", {"backends": {"driver": "2"}}),
        ("test", {"cause": {**TEST["cause"], "kind": "fate"}}),
        ("test", {"cause": {**TEST["cause"], "fix": "wait"}}),
        ("link", {"backend": "cuda"}),
        ("run", {"schema": 2}),
        ("run", {"versions": {"driver": {"found": "13.0"}}}),
    ],
)
def test_schema_refuses_wrong_values(event, change, validator) -> None:
    """A value of the wrong kind is refused."""
    with pytest.raises(ValidationError):
        validator.validate({"event": event, "time": 1.0, **EVENTS[event], **change})


def test_schema_outcomes_are_those_of_the_code(validator) -> None:
    """The outcomes are one list."""
    assert tuple(validator.schema["$defs"]["test"]["properties"]["outcome"]["enum"]) == records.OUTCOMES


def test_explanation_has_a_line_for_each_fix() -> None:
    """The block of a cause names the error, the reason and each change that helps."""
    cause = {**TEST["cause"], "what": "222", "why": "too new", "fix": ["compile older", "install newer"]}

    assert wording.explanation(cause) == ("error  222\nwhy    too new\nfix    compile older\n       install newer")


@given(place=st.floats(0, 1))
def test_a_cut_file_is_readable(place, tmp_path_factory) -> None:
    """Wherever a crash cuts, what was complete is read, and a cut line is said."""
    path = tmp_path_factory.getbasetemp() / "cut.jsonl"
    path.unlink(missing_ok=True)
    with Writer(path) as writer:
        for event, content in EVENTS.items():
            writer.write(event, **content)
    content = path.read_bytes()
    at = round(place * len(content))
    path.write_bytes(content[:at])
    complete = content[:at].count(b"\n")

    found = read(path)

    # a line that lacks only its newline is complete
    lines = content.splitlines()
    whole = complete < len(lines) and content[:at].endswith(lines[complete])
    assert found.truncated == (not whole and not content[:at].endswith(b"\n") and at > 0)
    assert (found.run is not None) == (complete + whole >= 1)
    assert len(found.tests) == (complete + whole > list(EVENTS).index("test"))


@given(st.lists(st.binary(max_size=40)))
def test_anything_is_read_or_refused(lines) -> None:
    """Garbage gives a RecordError or a recording, never another error."""
    try:
        records.parse(lines)
    except RecordError as error:
        assert "line " in str(error)


def test_unfinished_test_is_named(tmp_path) -> None:
    """A start without a test of the same worker and attempt is what a crash or an interruption cut."""
    path = tmp_path / "run.jsonl"
    with Writer(path) as writer:
        writer.write("run", **RUN)
        for worker, attempt in (("gw0", 1), ("gw0", 2), ("gw1", 1)):
            writer.write("start", nodeid="a", worker=worker, attempt=attempt)
        writer.write("test", **{**TEST, "nodeid": "a", "worker": "gw0", "attempt": 1})

    assert [(start.worker, start.attempt) for start in read(path).unfinished] == [("gw0", 2), ("gw1", 1)]


def test_unknown_events_and_keys_are_ignored(tmp_path) -> None:
    """What a later version adds does no harm."""
    path = tmp_path / "run.jsonl"
    with Writer(path) as writer:
        writer.write("run", **RUN, mood="good")
        writer.write("weather", rain=True)
    assert read(path).run.cell == "ctk-13.0"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"event": "run", "schema": 2}', "line 1 has format 2; this version reads formats up to 1"),
        ('not json\n{"event": "run", "schema": 1}', "line 1 is not an event"),
        ('{"event": "start", "nodeid": "a"}', "no event 'run' before the others"),
    ],
)
def test_no_record_file(content, words, tmp_path) -> None:
    """Another file is refused by name."""
    path = tmp_path / "other.jsonl"
    path.write_text(content)
    with pytest.raises(RecordError, match=words) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_last_run_counts(tmp_path) -> None:
    """A file that two runs were appended to is the second run."""
    path = tmp_path / "run.jsonl"
    for cell in ("first", "second"):
        with Writer(path) as writer:
            writer.write("run", **{**RUN, "cell": cell})
            writer.write("test", **TEST)
    found = read(path)
    assert found.run.cell == "second"
    assert len(found.tests) == 1


def _write_many(path: str, name: str) -> None:
    with Writer(path) as writer:
        for _ in range(200):
            writer.write("start", nodeid=name * 500, worker=name, attempt=1)


@pytest.mark.slow
def test_processes_share_a_file(tmp_path) -> None:
    """Lines of processes that write at the same time do not mix."""
    path = tmp_path / "run.jsonl"
    with Writer(path) as writer:
        writer.write("run", **RUN)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write_many, args=(str(path), name)) for name in "abc"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    found = read(path)
    assert len(found.starts) == 600
    assert all(start.nodeid == start.worker * 500 for start in found.starts)


def test_closed_writer_is_silent(tmp_path) -> None:
    """Writing after the end does nothing."""
    writer = Writer(tmp_path / "run.jsonl")
    writer.close()
    writer.close()
    writer.write("run", **RUN)
    assert (tmp_path / "run.jsonl").read_bytes() == b""


def test_a_short_count_is_continued(tmp_path, monkeypatch) -> None:
    """A system that takes a part of a line gets the rest."""
    real = os.write
    monkeypatch.setattr("os.write", lambda descriptor, data: real(descriptor, bytes(data[:7])))
    with Writer(tmp_path / "r.jsonl") as writer:
        writer.write("start", **EVENTS["start"])
    monkeypatch.undo()
    assert [one.nodeid for one in records.parse([(tmp_path / "r.jsonl").read_bytes()]).starts] == ["test_a.py::test"]


@pytest.mark.parametrize("taken", [0, 5])
def test_a_full_disk(taken, tmp_path, monkeypatch) -> None:
    """Without `on_error` it raises; with it, it is called once, and the file is closed after what was written."""
    real, left = os.write, [taken]

    def write(descriptor: int, data: bytes) -> int:
        part = bytes(data[: left[0]])
        left[0] -= len(part)
        return real(descriptor, part)

    monkeypatch.setattr("os.write", write)
    with Writer(tmp_path / "r.jsonl") as writer, pytest.raises(OSError, match="No space left"):
        writer.write("start", **EVENTS["start"])
    left[0], errors = taken, []
    with Writer(tmp_path / "r.jsonl", anew=True, on_error=errors.append) as writer:
        for _ in range(3):
            writer.write("start", **EVENTS["start"])
    assert [error.errno for error in errors] == [errno.ENOSPC]
    assert (tmp_path / "r.jsonl").stat().st_size == taken


def test_a_disk_that_is_found_full_on_closing(tmp_path, monkeypatch) -> None:
    """As on network file systems."""
    errors: list[OSError] = []
    writer = Writer(tmp_path / "r.jsonl", on_error=errors.append)
    writer.write("start", **EVENTS["start"])
    real = os.close

    def close(descriptor: int) -> None:
        real(descriptor)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("os.close", close)
    writer.close()
    writer.close()
    monkeypatch.undo()
    assert [error.errno for error in errors] == [errno.ENOSPC]


def test_hostile_text_in_a_record(tmp_path) -> None:
    """The file is ASCII with a line for each event, and lone surrogates come back."""
    nasty = "\ud800\x00\x1b[1m\u202e\u2028\n\r]]>"
    with Writer(tmp_path / "r.jsonl") as writer:
        writer.write("start", nodeid=nasty, worker=nasty, attempt=1)
    content = (tmp_path / "r.jsonl").read_bytes()
    assert content.isascii()
    assert content.count(b"\n") == 1
    assert records.parse([content]).starts[0].nodeid == nasty


def test_a_closed_descriptor_is_not_written_to(tmp_path) -> None:
    """A program that closes every descriptor and opens its own file at that number finds nothing of ours in it."""
    log, errors = tmp_path / "log", []
    log.write_text("the program's\n")
    writer = Writer(tmp_path / "r.jsonl", on_error=errors.append)
    reused = writer._descriptor
    assert reused is not None
    program = os.open(log, os.O_RDWR)
    os.dup2(program, reused)
    writer.write("end", exitstatus=0)
    writer.write("end", exitstatus=0)
    assert [(error.errno, error.filename) for error in errors] == [(errno.EBADF, str(tmp_path / "r.jsonl"))]
    os.write(reused, b"more")  # it was not closed
    os.close(reused)
    os.close(program)
    assert log.read_text() == "more" + "the program's\n"[4:]

"""The record file: what is written is read back, also when it was cut, and the published schema is that of the code."""

import errno
import json
import multiprocessing
import os
import socket
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError
from msgspec.structs import asdict, replace

from pytest_cudalink.report import RecordError, Writer, read, records
from pytest_cudalink.report.records import EndRecord, RunRecord, StartRecord, TestRecord

from .samples import EVENTS, SKEW

PUBLISHED = Path(__file__).parents[2] / "matrices" / "records.schema.json"

#: What a line of each kind has besides its time.
LINES = {
    kind.__struct_config__.tag: {key: value for key, value in asdict(kind).items() if key != "time"} for kind in EVENTS
}
RUN, START, TEST = (kind for kind in EVENTS if isinstance(kind, RunRecord | StartRecord | TestRecord))


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    """The published schema, itself checked."""
    Draft202012Validator.check_schema(records.schema())
    return Draft202012Validator(records.schema())


def write_events(path: Path) -> Path:
    with Writer(path) as writer:
        for event in EVENTS:
            writer.write(event)
    return path


@pytest.fixture
def written(tmp_path):
    """A file with every event."""
    return write_events(tmp_path / "folder" / "run.jsonl")


def test_round_trip(written, validator) -> None:
    """Every event is a line that the schema allows, and comes back with its fields."""
    record = read(written)
    for line in written.read_text().splitlines():
        validator.validate(json.loads(line))
    read_back = [event for value in vars(record).values() for event in (value if isinstance(value, list) else [value])]
    events = [event for event in read_back if event is not False]
    assert sorted(map(repr, EVENTS)) == sorted(repr(replace(event, time=0.0)) for event in events)
    assert all(event.time > 1e9 for event in events)
    assert (record.truncated, record.unfinished) == (False, [])


def test_schema_is_published(validator) -> None:
    """The published file is the schema of the code: ``python -m pytest_cudalink.report.records`` writes it."""
    assert PUBLISHED.read_text(encoding="utf-8") == json.dumps(validator.schema, indent=2) + "\n"


@pytest.mark.parametrize("event", LINES)
def test_the_schema_and_the_reader_take_the_same(event, validator) -> None:
    """An event without a key, or with another value there, is sound for both or neither; words may be new."""
    whole = {"event": event, "time": 1.0, **LINES[event]}
    every = [{name: whole[name] for name in whole if name != key} for key in LINES[event]]
    every += [{**whole, key: value} for key in LINES[event] for value in (True, 7, -1, 2**60, [7], "?", {})]
    for content in every:
        try:
            _, why = records.decode(json.dumps(content).encode())
        except RecordError as error:
            why = str(error)
        if "?" in content.values():
            assert not (why and validator.is_valid(content)), why
        else:
            assert validator.is_valid(content) == (not why), (content, why)


@pytest.mark.parametrize(
    ("event", "change"),
    [("test", {"longrepr": "x" * 4001}), ("test", {"cause": {**SKEW, "kind": "fate"}}), ("link", {"backend": "cuda"})],
)
def test_schema_refuses_wrong_values(event, change, validator) -> None:
    with pytest.raises(ValidationError):
        validator.validate({"event": event, "time": 1.0, **LINES[event], **change})


@pytest.mark.parametrize("line", ['"run", "argv": 1', '"run", "schema": 1, "argv": 1', '"start", "schema": 9'])
def test_a_line_of_this_version_that_does_not_fit(line) -> None:
    """Only a run says the version of its format."""
    with pytest.raises(RecordError, match="^is not a valid event "):
        records.decode(f'{{"event": {line}}}'.encode())


def test_a_last_line_that_does_not_fit() -> None:
    """Only a line without its end can be cut."""
    run, test = b'{"event": "run"}\n', b'{"event": "test", "nodeid": "a", "outcome": "well"}'
    assert records.parse([run, test]).truncated
    for lines in ([run, test, b'{"event": "end"}'], [run, test + b"\n"]):
        with pytest.raises(RecordError, match=r"^line 2 is not a valid event 'test': Invalid enum value 'well'"):
            records.parse(lines)


@given(place=st.floats(0, 1))
def test_a_cut_file_is_readable(place, tmp_path_factory) -> None:
    """Wherever a crash cuts, what was complete is read, and a cut line is said."""
    path = tmp_path_factory.getbasetemp() / "cut.jsonl"
    path.unlink(missing_ok=True)
    content = write_events(path).read_bytes()
    at = round(place * len(content))
    path.write_bytes(content[:at])
    complete = content[:at].count(b"\n")
    record = read(path)
    # a line that lacks only its newline is complete
    lines = content.splitlines()
    whole = complete < len(lines) and content[:at].endswith(lines[complete])
    assert record.truncated == (not whole and not content[:at].endswith(b"\n") and at > 0)
    assert (record.run is not None) == (complete + whole >= 1)
    assert len(record.tests) == (complete + whole > EVENTS.index(TEST))


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
        writer.write(RUN)
        for worker, attempt in (("gw0", 1), ("gw0", 2), ("gw1", 1)):
            writer.write(StartRecord(nodeid="a", worker=worker, attempt=attempt))
        writer.write(replace(TEST, nodeid="a"))
    assert [(start.worker, start.attempt) for start in read(path).unfinished] == [("gw0", 2), ("gw1", 1)]


def test_unknown_events_and_keys_are_ignored(tmp_path) -> None:
    """What a later version adds does no harm."""
    path = tmp_path / "run.jsonl"
    with Writer(path) as writer:
        writer.write(RUN)
    text = path.read_text().replace('"run", ', '"run", "mood": "good", ', 1)
    path.write_text(text + '{"event": "weather", "time": 1.0, "rain": true}\n')
    assert read(path).run.cell == "ctk-13.0"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"event": "run", "schema": 2}', "line 1: run.schema is 2; this version reads formats up to 1"),
        ('not json\n{"event": "run", "schema": 1}', "line 1 is not an event"),
        ('{"event": "start", "nodeid": "a"}', "no event 'run' before the others"),
        ('{"event": "test", "nodeid": "a", "outcome": "passed"}', "no event 'run' before the others"),
        ('{"event": "link", "target": "bundled"}', "no event 'run' before the others"),
        ('{"event": "start", "nodeid": 7}\n', "line 1 is not a valid event 'start': Expected `str`, got `int`"),
    ],
)
def test_no_record_file(content, words, tmp_path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(content)
    with pytest.raises(RecordError, match=words) as caught:
        read(path)
    assert str(path) in str(caught.value)
    path.write_text('{"event": "start", "nodeid": "a"}\n{"event": "ru')  # the run is in the part that is cut
    assert read(path).truncated


def test_last_run_counts(tmp_path) -> None:
    """A file that two runs were appended to is the second run."""
    path = tmp_path / "run.jsonl"
    for cell in ("first", "second"):
        with Writer(path) as writer:
            writer.write(replace(RUN, cell=cell))
            writer.write(TEST)
    record = read(path)
    assert record.run.cell == "second"
    assert len(record.tests) == 1


def _write_many(path: str, name: str) -> None:
    with Writer(path) as writer:
        for _ in range(200):
            writer.write(StartRecord(nodeid=name * 500, worker=name, attempt=1))


@pytest.mark.slow
def test_processes_share_a_file(tmp_path) -> None:
    """Lines of processes that write at the same time do not mix."""
    path = tmp_path / "run.jsonl"
    with Writer(path) as writer:
        writer.write(RUN)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write_many, args=(str(path), name)) for name in "abc"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    record = read(path)
    assert len(record.starts) == 600
    assert all(start.nodeid == start.worker * 500 for start in record.starts)


def test_a_short_count_is_continued(tmp_path, monkeypatch) -> None:
    """A system that takes a part of a line gets the rest."""
    real = os.write
    monkeypatch.setattr("os.write", lambda descriptor, data: real(descriptor, bytes(data[:7])))
    with Writer(tmp_path / "r.jsonl") as writer:
        writer.write(START)
    monkeypatch.undo()
    assert [start.nodeid for start in records.parse([(tmp_path / "r.jsonl").read_bytes()]).starts] == [START.nodeid]


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
        writer.write(START)
    left[0], errors = taken, []
    with Writer(tmp_path / "r.jsonl", truncate=True, on_error=errors.append) as writer:
        for _ in range(3):
            writer.write(START)
    assert [error.errno for error in errors] == [errno.ENOSPC]
    assert (tmp_path / "r.jsonl").stat().st_size == taken


def test_a_disk_that_is_found_full_on_closing(tmp_path, monkeypatch) -> None:
    """As on network file systems."""
    errors: list[OSError] = []
    writer = Writer(tmp_path / "r.jsonl", on_error=errors.append)
    writer.write(START)
    real = os.close

    def close(descriptor: int) -> None:
        real(descriptor)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("os.close", close)
    writer.close()
    writer.close()
    monkeypatch.undo()
    assert [error.errno for error in errors] == [errno.ENOSPC]


def test_events_are_constant_and_say_what_is_not_known() -> None:
    kinds = (records.Event, *records.EVENTS.values())
    assert all(kind.__struct_config__.frozen for kind in kinds)
    unknown = {"requested": None, "found": None}
    assert (RunRecord().arch, records.FoundRecord().arch) == (unknown, unknown)
    assert records.LinkRecord().versions == {"driver": None, "nvjitlink": None}
    assert not records.Recording().truncated
    with pytest.raises(TypeError, match="positional"):
        EndRecord(1.0)


@pytest.mark.parametrize(("event", "shown"), [("tezt", "'tezt'"), (["run"], "['run']")])
def test_lines_that_another_version_wrote(event, shown) -> None:
    said = f"event is {shown}, which is unknown; install a newer pytest-cudalink"
    assert records.decode(json.dumps({"event": event}).encode()) == (None, said)
    assert records.decode(b'{"event": "start", "nodeid": "a", "schema": 9}') == (StartRecord(nodeid="a"), "")
    for cell, kept in (("c", "c"), (7, None)):
        run, why = records.decode(json.dumps({"event": "run", "schema": 9, "cell": cell, "argv": 1}).encode())
        assert (run, why.partition(";")[0]) == (RunRecord(schema=0, cell=kept), "run.schema is 9")
    assert records.parse([b" \n", b'{"event": "run"}']).run == RunRecord()


def test_how_a_file_is_opened_and_closed(tmp_path, monkeypatch) -> None:
    """With its folders, for everybody whom the umask allows, and closed by whatever ends the writer, once."""
    path = tmp_path / "a" / "b" / "r.jsonl"
    before = os.umask(0)
    first = Writer(path)
    os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o666
    first.write(replace(RUN, facts={"path": Path("x")}))
    first.close()
    with Writer(path) as second:
        first.close()
        second.write(START)
        opened = [second._descriptor]
    third = Writer(path)
    opened.append(third._descriptor)
    third.__del__()
    half = Writer.__new__(Writer)
    half.__del__()
    half._opened = [os.open(path, os.O_RDONLY)]
    opened += half._opened
    half.__del__()
    for descriptor in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
    assert [json.loads(line)["event"] for line in path.read_bytes().splitlines()] == ["run", "start"]
    assert read(path).run.facts == {"path": "x"}
    third = Writer(path)
    monkeypatch.setattr("os.close", mock.Mock(side_effect=OSError(errno.ENOSPC, "full")))
    with pytest.raises(OSError, match="full"):
        third.close()
    monkeypatch.undo()
    os.close(third._opened[0])


def test_hostile_text_in_a_record(tmp_path) -> None:
    """The file is ASCII with a line for each event, and lone surrogates come back."""
    nasty = "\ud800\x00\x1b[1m\u202e\u2028\n\r]]>"
    with Writer(tmp_path / "r.jsonl") as writer:
        writer.write(StartRecord(nodeid=nasty, worker=nasty, attempt=1))
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
    writer.drop_before(0)
    writer.write(EndRecord(exitstatus=0))
    writer.write(EndRecord(exitstatus=0))
    (error,) = errors
    assert (error.errno, error.filename) == (errno.EBADF, str(tmp_path / "r.jsonl"))
    assert error.strerror == "the program has closed the file's descriptor"
    os.write(reused, b"more")  # it was not closed
    os.close(reused)
    os.close(program)
    assert log.read_text() == "more" + "the program's\n"[4:]


def _open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def test_a_record_has_one_run_at_a_time(tmp_path, monkeypatch) -> None:
    """A second one is refused until the first has closed the file, whatever children it leaves; a worker is not."""
    path = tmp_path / "r.jsonl"
    first = Writer(path, truncate=True)
    first.write(RUN)
    opened = _open_files()
    with pytest.raises(BlockingIOError) as refused:
        Writer(path, truncate=True)
    assert (_open_files(), refused.type) == (opened, BlockingIOError)
    with Writer(path) as worker:
        worker.write(START)
    assert len(path.read_bytes().splitlines()) == 2
    ours, its = socket.socketpair()
    if (child := os.fork()) == 0:  # pragma: no cover
        ours.close()
        its.send(b"x")
        its.recv(1)
        os._exit(0)
    its.close()
    ours.recv(1)
    # as where the process is killed: the child has the file open
    os.close(first._opened[0])
    first._descriptor = None
    with Writer(path, truncate=True) as second:
        assert path.stat().st_size == 0
        second.write(RUN)
    ours.close()
    os.waitpid(child, 0)
    third = Writer(path, truncate=True, keeps=lambda other: other == path)
    third.close()
    assert path.stat().st_size
    assert third not in records._locking
    fourth = Writer(path, truncate=True)
    shared = os.dup(fourth._opened[0])  # as a child that C code has forked has it
    fourth.close()
    Writer(path, truncate=True).close()
    os.close(shared)
    monkeypatch.setattr("fcntl.flock", mock.Mock(side_effect=OSError(errno.ENOLCK, "no locks")))
    with Writer(path, truncate=True), Writer(path, truncate=True):
        assert path.stat().st_size == 0
    monkeypatch.setattr(records, "fcntl", None)  # Windows
    with Writer(path, truncate=True), Writer(path, truncate=True) as last:
        last.write(RUN)
    assert read(path).run.cell == RUN.cell
    with Writer("/dev/null", truncate=True) as writer:
        writer.write(RUN)


def _holds_in_a_child(check: Callable[[], bool]) -> bool:
    if (child := os.fork()) == 0:  # pragma: no cover
        try:
            os._exit(not check())
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


def test_what_a_forked_child_has_of_a_record(tmp_path, monkeypatch) -> None:
    """It can append, has no lock and no further descriptor, and keeps what the program has put at our number."""
    path, log = tmp_path / "r.jsonl", tmp_path / "log"
    log.write_bytes(b"the program's")
    writer = Writer(path, truncate=True)
    (number,) = writer._opened
    writer.write(RUN)
    opened = _open_files()

    def appends() -> bool:
        alike = _open_files() <= opened and not os.get_inheritable(number)
        writer.write(START)
        return alike and not records._locking

    assert _holds_in_a_child(appends)
    writer.write(EndRecord(exitstatus=0))
    record = read(path)
    assert (len(record.starts), record.end is not None) == (1, True)
    # without /proc it shares the lock, which is the run's
    monkeypatch.setattr("os.open", mock.Mock(side_effect=OSError(errno.ENOENT, "no /proc")))
    assert _holds_in_a_child(lambda: writer.close() is None)
    monkeypatch.undo()
    with pytest.raises(BlockingIOError):
        Writer(path, truncate=True)
    content = path.read_bytes()
    for program in (log, path):
        os.dup2(theirs := os.open(program, os.O_RDONLY), number)
        os.close(theirs)
        expected = program.read_bytes()
        assert _holds_in_a_child(lambda expected=expected: os.read(number, 1 << 20) == expected)
        writer.close()  # our descriptor is gone, which closes nothing of theirs
    os.close(number)
    assert path.read_bytes() == content


def test_what_another_run_leaves(tmp_path) -> None:
    """Its tests are to be kept unless it ended with 0; the bytes before a run can be dropped."""
    path = tmp_path / "r.jsonl"

    def kept(*events: object, green: bool = False) -> set[str] | None:
        with Writer(path, truncate=True) as writer:
            for event in events:
                writer.write(event)
        return records.tests_to_keep(path, green=green)

    nodeid, end = START.nodeid, EndRecord(exitstatus=0)
    assert kept() is None
    assert kept(START) is None
    assert kept(RUN, START, end) is None
    assert kept(RUN, START, end, green=True) == {nodeid}
    assert kept(RUN, start := StartRecord(nodeid="s"), replace(TEST, nodeid="t")) == {start.nodeid, "t"}
    assert kept(RUN, records.CollectedRecord(tests={"f": ["a"], "g": [""]}), EndRecord(exitstatus=1)) == {"f::a", "g"}
    assert records.CollectedRecord(tests={"f": ["a", "b"], "g": [""]}).nodeids == ["f::a", "f::b", "g"]
    assert kept(RUN, end, RUN) == set()
    assert kept(RUN, end, records.ExitRecord(exitcode=1)) == set()
    assert kept(RUN, end, records.CrashRecord()) == set()
    size = path.stat().st_size
    with Writer(path) as writer:
        writer.write(START)
        writer.drop_before(size)
        writer.write(end)
    writer.drop_before(1)
    (number,) = writer._opened
    os.dup2(program := os.open(path, os.O_RDWR), number)
    writer.drop_before(1)  # nor does it where the program has the file at our number
    for descriptor in {program, number}:
        os.close(descriptor)
    assert [type(records.decode(line)[0]) for line in path.read_bytes().splitlines()] == [StartRecord, EndRecord]
    run, end = (json.dumps({"event": name, "time": 1.0, "exitstatus": 0}) for name in ("run", "end"))
    fields = ('"test", "nodeid": 7}', '"end", "time": "x"}', '"run", "time": "x"}', '"test", "nod')
    for damaged in (f'{{"event": {field}' for field in fields):
        for lines in ((run, damaged, end), (run, end, damaged)):
            path.write_text("".join(f"{line}\n" for line in lines))
            assert records.tests_to_keep(path, green=False) == set()
    path.write_text("notes of the user\n" * 3)
    assert records.tests_to_keep(path, green=True) is None

"""What waits: the table beside the recordings of GPUs, and how they are compared."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from campaigns.conformance import waits, waits_page
from campaigns.hardware.waits import DEEPEST, NO_DEVICE, NO_TIME, TASKS, Item, Recorder, item_of, items
from campaigns.recording import load, save
from pytest_cudalink import emulator
from pytest_cudalink.base.tables import read_table

#: What each call that was asked for its depth submits.
ROOM = {
    "cuMemsetD8Async device, 64": "work",
    "cuMemcpyHtoDAsync_v2 pageable to device, 4096": "staged",
    "cuLaunchKernel loaded": "work",
    "cuMemcpyHtoDAsync_v2 pinned to device, 4096": "copy",
    "cuStreamWriteValue32_v2": "work",
    "cuEventRecord": "work",
}
H100, H200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"


@pytest.mark.parametrize(("device", "count"), [(H100, 6216), (H200, 7061)])
def test_the_table_says_what_a_gpu_answered(device: str, count: int) -> None:
    """Every row agrees."""
    tally = waits.compare(waits.recorded()[device])
    assert tally.differences == []
    assert tally.total == count
    assert tally.left_out == 7  # how much work fills a stream: the test below


@pytest.mark.parametrize("device", [H100, H200])
def test_the_table_says_how_much_work_fills_a_stream(device: str) -> None:
    """Behind a gate as many calls return as were recorded, by what they submit; host functions always do."""
    depths = {row["name"]: {*waits.answers(row).values()} for row in waits.recorded()[device]["depth"]}
    assert depths.pop("cuLaunchHostFunc") == {f"none of {DEEPEST} waits"}
    room = read_table("emulator/waits.toml")["room"]
    assert depths == {name: {room[what]} for name, what in ROOM.items()}


def test_two_gpus_answer_alike() -> None:
    """The H100 and the H200 agree on every row that both were asked."""
    tally = waits.compare(waits.recorded()[H200], waits.answers_in(waits.recorded()[H100]))
    assert tally.total == 6163
    assert tally.differences == []


def test_a_row_is_asked_again_by_its_words(tmp_path: Path) -> None:
    """The words of each recorded row are those that the recorder asks it by, or reads from a file."""
    every = [item for task in TASKS for item in items(task)]
    again = [item_of(kind, row) for kind, row in waits.rows(waits.recorded()[H100])]
    assert set(again) <= set(every)
    assert len(set(again)) == len(again)
    file = tmp_path / "items.json"
    file.write_text(json.dumps(again[:9]), encoding="utf-8")
    parts = [list(items(f"items {part} 2 {file}")) for part in range(2)]
    assert parts == [again[:4], again[4:9]]


def wait_row(call: str = "cuMemAlloc_v2", words: str = "64", place: str = "blocking", **answer: Any) -> dict[str, Any]:
    """A row of a call that is asked alone."""
    return {"call": call, "given": words, "stream": "", "place": place, **(answer or {"answer": ["returns", 0]})}


def held(waiting: str, answer: str, call: str = "cuMemAlloc_v2", words: str = "64") -> dict[str, Any]:
    """A row of a call that is asked while another waits at a gate in a non-blocking stream."""
    places = {"waiting": waiting, "stream": "non-blocking", "place": "non-blocking"}
    return {"call": call, "given": words, **places, "answer": [answer, 0]}


def recording(**rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A recording of a few rows."""
    about = {"device": "a GPU", "seconds": 1.25}
    return {"about": about, **{kind: rows.get(kind, []) for kind in ("one", "held", "limit", "depth")}}


def test_a_wrong_answer_is_counted() -> None:
    """A row is equal if it is under each loading that was asked; rows without an answer are left out."""
    lazy = {"LAZY": [["returns", 0]], "EAGER": [["waits", 0]]}
    rows = [
        wait_row(),
        wait_row(place="legacy", answers=lazy),
        wait_row(place="none", answers={}),
        wait_row(answer=["cannot be asked: 801", None]),
    ]
    tally = waits.compare(recording(one=rows, depth=[{"name": "cuEventRecord", "answer": [1020, 0]}]))
    assert (tally.total, tally.equal, tally.left_out) == (2, 1, 2)
    assert [difference[2:] for difference in tally.differences] == [("EAGER", "waits", "returns")]


def test_a_merged_recording_has_the_later_answers() -> None:
    """A call that waits without a gate says nothing, and holds up no others at a gate that it does not wait for."""
    slow = [wait_row("cuCtxCreate_v2", "", place, answer=["waits", 0]) for place in ("none", "legacy")]
    first = recording(
        one=[
            *slow,
            wait_row(place="none"),
            wait_row(answer=["waits", 0], ms=150),
            wait_row("cuMemUnmap", "", "non-blocking"),
            wait_row("cuMemFree_v2", "device, 64", "non-blocking", answer=["waits", 0]),
        ],
        held=[
            held("cuMemUnmap", "free"),
            held("cuMemFree_v2 device, 64", "held"),
            {**held("cuMemUnmap", "held"), "place": "non-blocking, copy behind"},
        ],
    )
    merged = waits.merged(
        [first, recording(one=[wait_row(), wait_row(place="another device", answer=[NO_DEVICE, None])])]
    )
    assert {(row["call"], row["place"]): waits.answers(row)["LAZY"] for row in merged["one"]} == {
        ("cuMemAlloc_v2", "none"): "returns",
        ("cuMemAlloc_v2", "blocking"): "returns",
        ("cuMemUnmap", "non-blocking"): "returns",
        ("cuMemFree_v2", "non-blocking"): "waits",
    }
    assert [waits.answers(row)["LAZY"] for row in merged["held"]] == ["nobody waits", "held", "nobody waits"]
    assert merged["about"] == {"device": "a GPU", "seconds": 2.5, "counts": {"rows": 7}}
    assert "ms" not in json.dumps(merged)


def test_the_command_counts_and_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It counts equal rows, compares with the table or another recording, and fails for a difference; it merges."""
    right, wrong, merged = (tmp_path / f"{name}.json" for name in ("right", "wrong", "merged"))
    save(right, recording(one=[wait_row(), wait_row(place="legacy")]))
    save(wrong, recording(one=[wait_row(), wait_row(place="legacy", answer=["waits", 0])]))

    assert waits.main([str(wrong)]) == 1
    assert capsys.readouterr().out == "a GPU: 1 of 2 rows are equal, 0 are left out\n"
    for other in ([], ["--with", str(right)]):
        assert waits.main([str(wrong), "--show", *other]) == 1
        assert capsys.readouterr().out.count("cuMemAlloc_v2 | 64 | legacy, lazy: waits -> returns") == 1
    assert waits.main([str(merged), "--merge", str(wrong), str(right)]) == 0
    assert waits.main([str(merged), "--show"]) == 0
    assert "cuMemAlloc_v2" not in capsys.readouterr().out


def test_the_recorder_writes_what_was_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One answer where all are alike; those of a loading where it was asked alone; nothing of what was not asked."""
    recorder = Recorder(tmp_path / "out.json.xz", 1)

    def note(loading: str, place: str, answer: str) -> None:
        recorder.note(loading, ("one", "cuMemAlloc_v2 64", "", place), {"answer": answer, "code": 0, "after": []})

    for loading in ("LAZY", "EAGER"):
        note(loading, "legacy", "returns")
        note(loading, "same", NO_TIME)
        note(loading, "another device", NO_DEVICE)
    note("LAZY", "blocking", "waits")
    note("EAGER", "blocking", NO_TIME)
    recorder.write({"device": "a GPU"})
    content = load(tmp_path / "out.json.xz")
    assert content["one"] == [wait_row(place="legacy"), wait_row(answers={"LAZY": [["waits", 0]]})]
    assert content["about"]["counts"] == json.loads(capsys.readouterr().out)["counts"]
    assert {name: content["about"]["counts"][name] for name in ("rows", "askings", NO_TIME)} == {
        "rows": 2,
        "askings": 3,
        NO_TIME: 2,
    }


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "waits.md"


def test_the_page_has_every_call_that_was_asked() -> None:
    """Each block stands on the page; a call is among those that wait, or that do not, or in both with its arguments."""
    blocks = waits_page.blocks()
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in blocks if f"{{generated}} campaigns.conformance.waits_page {name}\n" not in page] == []
    rows = [row for recording in waits.recorded().values() for kind, row in waits.rows(recording) if kind == "one"]
    waiting = {
        row["call"] for row in rows if "waits" in waits.answers(row).values() and row["call"] != "cuMemPoolDestroy"
    }
    first = {name for line in blocks["waiting"].splitlines() for name in line.split("|")[1].strip().split(", ")}
    assert len(waiting) > 30
    for row in rows:
        name = f"`{waits_page.name_of(row['call'])}`"
        assert (name in first) == (row["call"] in waiting), name
        assert name in blocks["returning"] or row["call"] in waiting, name


@pytest.mark.parametrize(
    ("block", "line"),
    [
        (
            "waiting",
            "| `cuMemFree` | device; managed; sync memops | every stream of the context | may synchronize implicitly",
        ),
        ("waiting", "| `cuCtxDestroy` | idle; work in it | every stream of every context | nothing |  |"),
        (
            "waiting",
            "array to pinned | the legacy stream and all blocking ones | returns once the copy has",
        ),
        ("waiting", "pageable to device; more than 2,097,152 bytes | its stream,"),
        ("waiting", "the same with `Async` for device to pinned; array to pinned |"),
        ("waiting", "Lazy Loading) | `cuKernelGetFunction`, earlier |"),
        ("returning", "`cuMemFree` (of a pool; nothing), `cuMemAllocPitch`,"),
        ("held", "`cuModuleUnload` | none that was asked |"),
        ("held", "None of them holds up `cuCtxGetCurrent`,"),
        ("limits", "| `cuMemcpyAsync` | more than 2,097,152 bytes | pageable to managed, pageable to device |"),
        ("limits", "| `cuLaunchHostFunc` | all of 8,192 |"),
        ("machines", "| NVIDIA H100 80GB HBM3 | 580.159.04 | 6,223 | 6,216 of 6,216 |"),
    ],
)
def test_the_page_says_what_was_recorded(block: str, line: str) -> None:
    """Rows have the table's words, and the memory or the state that a call was asked with."""
    assert line in waits_page.blocks()[block]


#: Rows that the emulated driver is asked in the quick tests.
FEW = (
    ("one", "cuMemFree_v2 device, 64", "", "per-thread of another thread"),
    ("one", "cuMemFree_v2 of a pool", "legacy", "same"),
    ("one", "cuMemAlloc_v2 64", "", "non-blocking"),
    ("one", "cuCtxSynchronize", "", "another context"),
    ("one", "cuStreamSynchronize", "blocking", "legacy"),
    ("one", "cuEventSynchronize", "blocking", "legacy"),
    ("one", "cuMemcpyHtoD_v2 pinned to device, 4096", "", "non-blocking"),
    ("one", "cuMemcpyHtoDAsync_v2 pageable to device, 1048576", "per-thread", "same"),
    ("one", "cuLibraryGetModule not used", "", "blocking"),
    ("one", "cuModuleGetFunction again", "", "blocking"),
    *(("one", call, "", "non-blocking") for call in ("cuMemFreeHost", "cuModuleLoadData cubin", "cuModuleUnload")),
    *(("one", f"cuCtxSetLimit {which}", "", "non-blocking") for which in ("stack, same", "stack, larger")),
    *(("one", f"cuKernelGetFunction {which}", "", "non-blocking") for which in ("first", "again")),
    ("held", "cuMemFree_v2 device, 64", "non-blocking", "non-blocking", "cuMemsetD8Async device, 64"),
    ("held", "cuMemFree_v2 device, 64", "non-blocking", "non-blocking", "cuMemAlloc_v2 64"),
    ("held", "cuMemFree_v2 device, 64", "non-blocking", "non-blocking", "cuMemAllocAsync"),
    ("held", "cuCtxSynchronize", "non-blocking", "non-blocking", "cuStreamCreate non-blocking"),
    ("held", "cuMemUnmap", "non-blocking", "non-blocking", "cuEventCreate"),
    ("held", "cuCtxDestroy_v2 gate in it", "non-blocking", "none", "cuLibraryLoadData cubin"),
    *(("depth", name) for name in ROOM if name != "cuLaunchKernel loaded"),
)


def record_with(folder: Path, *options: str) -> dict[str, Any]:
    """The answers of the emulated driver of the H100 to the recorder."""
    planned = emulator.emulation_for("13.0", release="580.159.04", device="h100")
    file = folder / "asked.json"
    command = [sys.executable, "-m", "campaigns.hardware.waits", str(file), "--times=1", "--loading=LAZY", *options]
    environment = {**os.environ, **planned.environment()}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return load(file)


def asked_rows(folder: Path, chosen: Iterable[Item]) -> dict[str, Any]:
    """The same for some rows, in one process."""
    file = folder / "items.json"
    file.write_text(json.dumps(list(chosen)), encoding="utf-8")
    return record_with(folder, f"--items={file}", "--seconds=600", "--jobs=3")


def test_the_emulated_driver_waits_as_the_h100(tmp_path: Path) -> None:
    """Rows of each kind of wait, and calls that another thread's wait holds up, have the recorded answers.

    A busy machine may be slower than a gate stays closed, so what differs is asked again.
    """
    recorded = waits.answers_in(waits.recorded()[H100])
    compared = waits.compare(asked_rows(tmp_path, FEW), recorded)
    assert compared.total == len(FEW)
    differing = compared.differences
    for _ in range(5):
        if differing:
            again = {item_of(kind, row) for kind, row, *_ in differing}
            differing = waits.compare(asked_rows(tmp_path, again), recorded).differences
    assert not differing


@pytest.mark.slow
def test_every_tenth_row_on_the_emulated_driver(tmp_path: Path) -> None:
    """At least 99 % of them have the recorded answers.

    `python -m campaigns.hardware.waits` below `cudalink driver run` asks all, in over a minute.
    """
    recording = waits.recorded()[H100]
    chosen = [item_of(kind, row) for kind, row in waits.rows(recording)][::10]
    whole = asked_rows(tmp_path, chosen)
    differing = waits.compare(whole, waits.answers_in(recording)).differences
    again = asked_rows(tmp_path, {item_of(kind, row) for kind, row, *_ in differing})
    compared = waits.compare(waits.merged([whole, again]), waits.answers_in(recording))
    different = "\n".join(str(difference[1:]) for difference in compared.differences)
    assert compared.equal >= 0.99 * compared.total, different
    # what needs a kernel, or a graph with one
    assert compared.left_out < 20
    assert compared.total > 500

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
from campaigns.driver import load, save
from campaigns.hardware.waits import DEEPEST, TASKS, Item, item_of, items
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


def test_a_wrong_answer_is_counted() -> None:
    """A row is equal if it is under each loading that was asked; rows without an answer are left out."""
    asked = {"call": "cuMemAlloc_v2", "given": "64", "stream": ""}
    right, lazy = {"answer": ["returns", 0]}, {"answers": {"LAZY": [["returns", 0]], "EAGER": [["waits", 0]]}}
    answers = {
        "blocking": right,
        "legacy": lazy,
        "none": {"answers": {}},
        "same": {"answer": ["cannot be asked", None]},
    }
    rows = [{**asked, "place": place, **answer} for place, answer in answers.items()]
    tally = waits.compare({"one": rows, "held": [], "limit": [], "depth": [{"name": "cuEventRecord", **right}]})
    assert (tally.total, tally.equal, tally.left_out) == (2, 1, 2)
    assert [difference[2:] for difference in tally.differences] == [("EAGER", "waits", "returns")]


def test_a_row_is_asked_again_by_its_words() -> None:
    """The words of each recorded row are those that the recorder asks it by, and no two rows have the same."""
    again = [item_of(kind, row) for kind, row in waits.rows(waits.recorded()[H100])]
    assert {*again} <= {item for task in TASKS for item in items(task)}
    assert len({*again}) == len(again)


def recording(*rows: tuple[str, str, str], held: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
    """A recording of calls that are asked alone, with their places and answers, and of calls that may be held up."""
    made = [{"call": c, "given": "", "stream": "", "place": place, "answer": [a, 0], "ms": 150} for c, place, a in rows]
    asked = {"call": "cuCtxGetCurrent", "given": "", "stream": "non-blocking", "place": "non-blocking"}
    second = [{"waiting": waiting, **asked, "answer": [answer, 0]} for waiting, answer in held]
    return {"about": {"device": "a GPU", "seconds": 1.25}, "one": made, "held": second, "limit": [], "depth": []}


def test_a_merged_recording_has_the_later_answers() -> None:
    """A call that waits without a gate says nothing, and holds up no others at a gate that it does not wait for."""
    slow = [("cuCtxCreate_v2", place, "waits") for place in ("none", "legacy")]
    alone = [("cuMemUnmap", "non-blocking", "returns"), ("cuCtxSynchronize", "non-blocking", "waits")]
    held = [("cuMemUnmap", "free"), ("cuCtxSynchronize", "held")]
    earlier = recording(*slow, *alone, ("cuCtxGetId", "none", "waits"), held=held)
    merged = waits.merged([earlier, recording(("cuCtxGetId", "none", "returns"))])
    later = recording(*alone, ("cuCtxGetId", "none", "returns"))["one"]
    assert merged["one"] == [{name: value for name, value in row.items() if name != "ms"} for row in later]
    assert [waits.answers(row)["LAZY"] for row in merged["held"]] == ["nobody waits", "held"]
    assert merged["about"] == {"device": "a GPU", "seconds": 2.5, "counts": {"rows": 5}}


def test_the_command_fails_for_a_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the table or from another recording, which it shows; a merged recording has what is right."""
    right, wrong, merged = (tmp_path / f"{name}.json" for name in ("right", "wrong", "merged"))
    for file, answer in ((right, "returns"), (wrong, "waits")):
        save(file, recording(("cuCtxGetCurrent", "legacy", answer)))
    for other in ([], ["--with", str(right)]):
        assert waits.main([str(wrong), "--show", *other]) == 1
        count, *differences = capsys.readouterr().out.splitlines()
        assert count == "a GPU: 0 of 1 rows are equal, 0 are left out"
        ways = ("lazy", "eager")
        assert differences == [f"  one | cuCtxGetCurrent | legacy, {way}: waits -> returns" for way in ways]
    assert waits.main([str(merged), "--merge", str(wrong), str(right)]) == 0
    assert waits.main([str(merged), "--show"]) == 0


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
        ("waiting", "array to pinned | the legacy stream and all blocking ones | returns once the copy has"),
        ("waiting", "the same with `Async` for device to pinned; array to pinned |"),
        ("waiting", "Lazy Loading) | `cuKernelGetFunction`, earlier |"),
        ("returning", "`cuMemFree` (of a pool; nothing), `cuMemAllocPitch`,"),
        ("held", "None of them holds up `cuCtxGetCurrent`,"),
        ("limits", "| `cuMemcpyAsync` | more than 2,097,152 bytes | pageable to managed, pageable to device |"),
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


#: Answers the rows of a file. What returns does so at once, so that a third of the time shows that a call waits.
ASKING = """
from campaigns.hardware import waits
waits.LIMIT = 0.05
waits.timed_open.__defaults__ = (0.05,)
waits.child("items 0 1 {file}", 0)
"""


def test_the_emulated_driver_waits_as_the_h100(on_driver, tmp_path: Path) -> None:
    """Rows of each kind of wait, and calls that another thread's wait holds up, have the recorded answers.

    A busy machine may be slower than a gate stays closed, so what differs is asked again.
    """
    recorded = {item_of(kind, row): waits.answers(row) for kind, row in waits.rows(waits.recorded()[H100])}
    differing = {item: recorded[item]["LAZY"] for item in FEW}
    file = tmp_path / "items.json"
    for _ in range(6):
        if differing:
            file.write_text(json.dumps([*differing]), encoding="utf-8")
            options = {"release": "580.159.04", "device": "h100", "env": {"CUDA_MODULE_LOADING": "LAZY"}}
            lines = on_driver("13.0", "-c", ASKING.format(file=file), **options).stdout.splitlines()
            answers = {line[0]: line[1]["answer"] for line in map(json.loads, filter(None, lines)) if line[1:]}
            asked = enumerate(differing.items())
            differing = {item: answer for at, (item, answer) in asked if answers.get(at) != answer}
    assert not differing


def asked_rows(folder: Path, chosen: Iterable[Item]) -> dict[str, Any]:
    """The answers of the emulated driver of the H100 to the recorder."""
    planned = emulator.emulation_for("13.0", release="580.159.04", device="h100")
    rows, file = folder / "items.json", folder / "asked.json"
    rows.write_text(json.dumps(list(chosen)), encoding="utf-8")
    options = ("--times=1", "--loading=LAZY", f"--items={rows}", "--seconds=600", "--jobs=4")
    command = [sys.executable, "-m", "campaigns.hardware.waits", str(file), *options]
    subprocess.run(command, env={**os.environ, **planned.environment()}, check=True)
    return load(file)


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

"""Random programs: what a real driver answered to them, against what the emulated one answers."""

import copy
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from campaigns.conformance.programs import compare as comparer
from campaigns.conformance.programs.api import FUNCTIONS, KINDS, MAKERS, THEMES
from campaigns.conformance.programs.generate import generate
from campaigns.conformance.programs.open_answers import left_open
from campaigns.conformance.programs.record import load
from pytest_cudalink.base.compiler import find_compiler
from pytest_cudalink.emulator.recorder import record as recorder
from pytest_cudalink.emulator.recorder.execute import Interpreter, execute, layouts
from pytest_cudalink.emulator.recorder.grade import ENDS

GOALS = tomllib.loads((Path(comparer.__file__).parent / "goals.toml").read_text(encoding="utf-8"))


@pytest.fixture
def headers(toolchain):
    """Folder of the cuda.h of CUDA 13.0."""
    return toolchain("13.0") / "include"


@pytest.fixture(scope="module")
def recording():
    return load(comparer.RECORDED / GOALS["recording"])


def spread(several: list, number: int) -> list:
    """So many of them, from the first to the last."""
    step = max(len(several) / number, 1)
    return [several[int(place * step)] for place in range(min(number, len(several)))]


def ended(programs: list, ours: dict) -> list:
    """The calls that ended the emulated driver where the real one went on.

    Work that ends the process may do so as soon as it is submitted, or in the call that waits for it: program 151166
    posts a semaphore in memory that is gone. Program 400012 writes to memory that it freed, which is there again if
    the next allocation got its address.
    """
    return [
        (seed, program[len(ours[seed]) - 1][0], ours[seed][-1])
        for seed, theme, program, real in programs
        if ours[seed] and ours[seed][-1] and ours[seed][-1][0] == "signal"
        if not (real[-1] and real[-1][0] == "signal" and len(real) <= len(ours[seed]) + 1)
        if len(ours[seed]) - 1 not in left_open(theme, program, real, ours[seed])["addresses"]
    ]


@pytest.mark.slow
def test_unseen_programs_are_answered_as_recorded(toolchain) -> None:
    """The goals hold on programs that were not used while mending."""
    toolchain("13.0")
    recording = load(comparer.RECORDED / GOALS["held_back"])
    unseen = recording["programs"]
    ours = comparer.replay(recording, unseen)
    assert ended(unseen, ours) == []
    results = [comparer.compare(*recorded, ours[recorded[0]]) for recorded in unseen]
    for title in comparer.PARTS:
        tally = comparer.tally(results, title)
        assert len(tally.results) >= 50, title
        assert tally.share >= GOALS[title]["calls"], (title, tally)
        assert tally.program_share >= GOALS[title]["programs"], (title, tally)


#: In how many tests a set of programs is replayed.
PARTS = 4
#: The calls of those programs that the emulated driver answers otherwise, by the program's seed.
DIFFERING_TOO = {
    556: [35], 1563: [18], 1786: [20], 1978: [27], 2315: [23], 2433: [9], 2538: [34], 2683: [28], 2813: [25],
    2825: [5], 3150: [39], 3462: [22], 3613: [37], 3911: [28], 4295: [33], 4361: [39], 10850: [38],
    11260: [28], 11618: [37], 100248: [19], 100431: [21],
}  # fmt: skip
#: Reads a million bytes behind a handle as memory of the host, so that what lies there decides.
READS_BEHIND = 50679
#: Uses a graph that went with its capture: malloc decides whether the graph of the next capture has its address.
USES_A_LOST_GRAPH = 3062


def differing(programs: list, ours: dict) -> dict[int, list[int]]:
    """The calls that differ, by the program's seed; malloc decides which address comes back."""
    results = {program[0]: comparer.compare(*program, ours[program[0]]).differences for program in programs}
    calls = {
        seed: [difference.call for difference in differences if '["=' not in (difference.real[:3], difference.ours[:3])]
        for seed, differences in results.items()
    }
    return {seed: numbers for seed, numbers in calls.items() if numbers}


@pytest.mark.weekly
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_others_are_answered_as_recorded(part: int, recording, toolchain) -> None:
    """Of a part of the programs that the package does not carry each call; those about order only end nothing."""
    toolchain("13.0")
    carried = {seed for seed, *_ in recorder.load(recorder.PROGRAMS)} | {READS_BEHIND}
    used = spread([p for p in recording["programs"] if p[0] not in carried], GOALS["programs"])[part::PARTS]
    ours = comparer.replay(recording, used, processes=1)
    assert ended(used, ours) == []
    compared = [recorded for recorded in used if recorded[1] != "order" and recorded[0] != USES_A_LOST_GRAPH]
    assert differing(compared, ours) == {r[0]: DIFFERING_TOO[r[0]] for r in compared if r[0] in DIFFERING_TOO}


#: The calls of the package's programs that the emulated driver answers otherwise than an H100, by the program's seed.
DIFFERING = {
    84: [28], 202: [30], 246: [4], 341: [31], 1366: [39], 1730: [24], 2008: [25], 3106: [2], 4180: [8], 11268: [15],
}  # fmt: skip


@pytest.mark.parametrize("part", range(PARTS))
def test_each_answer_is_the_recorded_one(part: int, toolchain) -> None:
    """The programs that the package carries, whose 10,133 answers the share of all programs would hide."""
    toolchain("13.0")
    recorded = recorder.load(recorder.RECORDED[0])
    answers = recorded["answers"]["programs"]
    programs = [[*program, answers[str(program[0])]] for program in recorder.load(recorder.PROGRAMS)][part::PARTS]
    ours = comparer.replay({**recorded, "device": recorded["devices"][0]["name"]}, programs, processes=1)
    results = {program[0]: comparer.compare(*program, ours[program[0]]) for program in programs}
    unlike = {seed: [d.call for d in result.differences] for seed, result in results.items() if result.differences}
    assert unlike == {seed: DIFFERING[seed] for seed in results if seed in DIFFERING}
    # what is left open is not counted: more of it would hide a difference
    assert sum(result.counted for result in results.values()) == (2536, 2531, 2539, 2527)[part]


#: Programs that differed until a rule was found: child graphs, conditions, waits for events that are done, clusters.
MENDED = (150031, 100008, 2362, 10003, 3971, 51804, 150116)


@pytest.mark.slow
def test_what_was_mended_stays_so(recording, toolchain) -> None:
    toolchain("13.0")
    programs = [program for program in recording["programs"] if program[0] in MENDED]
    ours = comparer.replay(recording, programs)
    assert [diff for program in programs for diff in comparer.compare(*program, ours[program[0]]).differences] == []


#: A program with a stream, an event and memory, and the answers of a real driver.
EXAMPLE = [
    (["cuInit", 0], [0]),
    (["cuDevicePrimaryCtxRetain", ["o", "H"], 0], [0, "?"]),
    (["cuCtxSetCurrent", "$1"], [0]),
    (["cuStreamCreate", ["o", "h"], 0], [0, "new"]),
    (["cuStreamGetFlags", "$3", ["o", "I"]], [0, 0]),
    (["cuMemAlloc_v2", ["o", "h"], 64], [0, "new"]),
    (["cuStreamQuery", "$3"], [0]),
    (["cuMemFree_v2", "$5"], [0]),
]
#: What the emulated driver answers otherwise, by the number of the call; what is counted, equal and left out; and which
#: calls differ.
COMPARED = {
    "equal answers": ({}, (8, 8, 0), []),
    "a wrong value spoils nothing else": ({4: [0, 1]}, (8, 7, 0), [(4, "[0]", "[1]")]),
    "what needs a differing call": ({3: [2, "-"], 4: [400, "-"], 6: [400]}, (6, 5, 2), [(3, "0", "2")]),
    "a different context ends the comparison": ({2: [1], 5: [201, "-"]}, (3, 2, 0), [(2, "0", "1")]),
}


@pytest.mark.parametrize(("changes", "counts", "differing"), COMPARED.values(), ids=list(COMPARED))
def test_answers_are_compared(changes: dict, counts: tuple, differing: list) -> None:
    program, real = zip(*copy.deepcopy(EXAMPLE), strict=True)
    result = comparer.compare(7, "core", [*program], [*real], [changes.get(at, a) for at, a in enumerate(real)])
    assert [(difference.call, difference.real, difference.ours) for difference in result.differences] == differing
    assert (result.counted, result.equal, result.left_out) == counts


LAUNCH, QUERY = ["cuLaunchKernel", 0], ["cuStreamQuery", 0]
LOADED, UNLOADED = ["cuModuleLoadData", ["o", "h"], "!program"], ["cuModuleUnload", "$0"]
FINDS, ASKS = ["cuModuleGetFunction", ["o", "H"], "$0", "'k"], ["cuFuncGetAttribute", ["o", "i"], 0, "$1"]
CREATED, ENDED = ["cuCtxCreate_v2", ["o", "h"], 0, 0], ["cuCtxDestroy_v2", "$0"]
AWAY, AGAIN = ["cuModuleUnload@1", "$0"], ["cuModuleGetFunction", ["o", "H"], "$3", "'k"]
BACK = [[0, "new"], [0, "?"], [0], [0, "new"]]
MADE, BEFORE = [[0, "new"], [0, "?"]], [[0, "new"], [0], [0, "?"]]
THREE, DIED, LIVED = [["cuInit", 0], ["cuStreamQuery", 16], QUERY], [[0], ["signal", "SIGSEGV"]], [[0], [400], [201]]


@pytest.mark.parametrize(
    ("theme", "program", "real", "ours", "counted", "left_out", "differing"),
    [
        ("core", [["cuDeviceGetCount", ["o", "i"]]], [[3, "-"]], [[3, 0]], 1, 0, []),  # a failed call has no values
        ("core", THREE, LIVED, DIED, 2, 0, [("400", "SIGSEGV")]),
        ("core", THREE, DIED, LIVED, 1, 0, []),
        ("core", THREE, LIVED[:1], LIVED, 1, 1, []),
        ("added", [LAUNCH, QUERY], [[0], [600]], [[801], [0]], 0, 2, []),  # it runs; work is not done
        ("core", [LAUNCH], [[400]], [[801]], 1, 0, [("400", "801")]),
        ("programs", [QUERY, QUERY], [[0], [600]], [[600], [0]], 0, 2, []),
        # what lay in an object that is gone may be there by chance, or its address be another's; later ones count
        ("core", [LOADED, FINDS, AWAY, LOADED, AGAIN], [*BACK, [0, "=1.0"]], [*BACK, [0, "?"]], 5, 0, []),
        ("core", [LOADED, FINDS, UNLOADED, ASKS], [*MADE, [0], [0, 3]], [*MADE, [0], [400]], 3, 1, []),
        (
            "core",
            [LOADED, UNLOADED, FINDS, [*ASKS[:3], "$2"]],
            [*BEFORE, [0, 3]],
            [*BEFORE, [400]],
            4,
            0,
            [("0", "400")],
        ),
        ("core", [CREATED, FINDS, ENDED, FINDS], [*MADE, [0], [0, "=1.0"]], [*MADE, [0], [0, "?"]], 4, 0, []),
    ],
)
def test_what_is_no_difference(theme: str, program: list, real: list, ours: list, counted, left_out, differing) -> None:
    result = comparer.compare(1, theme, program, real, ours)
    assert [(difference.real, difference.ours) for difference in result.differences] == differing
    assert (result.counted, result.left_out) == (counted, left_out)


def test_generator_is_deterministic() -> None:
    seeds = (0, 17, 100003)
    text = (
        "from campaigns.conformance.programs.generate import generate; import json\n"
        f"print(json.dumps([generate(seed) for seed in {seeds}]))"
    )
    start = {"cwd": Path(__file__).parents[2], "env": {**os.environ, "PYTHONHASHSEED": "1"}}
    out = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True, **start).stdout
    assert json.loads(out) == json.loads(json.dumps([generate(seed) for seed in seeds]))


@pytest.mark.slow
def test_programs_use_every_function_with_its_parameters(headers) -> None:
    """Of cuda.h, the one of CUDA 13.0: no call has a parameter too many or too few."""
    text = re.sub(r"/\*.*?\*/", "", (headers / "cuda.h").read_text(encoding="utf-8"), flags=re.DOTALL)
    aliases = dict(re.findall(r"#define (cu\w+)\s+(?:__CUDA_API_PT[SDZ]+\()?(cu\w+)", text))
    counts = {
        aliases.get(name, name): 0 if words.strip() == "void" else words.count(",") + 1
        for name, words in reversed(re.findall(r"CUresult CUDAAPI (\w+)\(([^;]*?)\);", text))
    }
    used = {}
    for seed in range(1500):
        for call in generate(seed)[1]:
            used[call[0].partition("@")[0]] = len(call) - 1
            assert counts.get(call[0], len(call) - 1) == len(call) - 1, call
    assert used.keys() == {function.symbol for function in FUNCTIONS}
    assert len(used) > 400


def test_table_is_sound() -> None:
    symbols = {function.symbol for function in FUNCTIONS}
    assert {maker for text in MAKERS.values() for maker in text.split()} <= symbols
    assert set(MAKERS) == set(KINDS)
    ends = {f.symbol: place for f in FUNCTIONS for place, word in enumerate(f.parameters) if word[0] == "~"}
    assert ends == ENDS
    assert {function.group for function in FUNCTIONS} == {name for _, groups in THEMES.values() for name in groups}


def test_layouts_are_those_of_the_header(headers, tmp_path) -> None:
    """Compiled, cuda.h has the sizes and offsets that programs use."""
    lines = [
        f'_Static_assert(sizeof({name}) == {size}, "{name}");\n'
        + "".join(
            f'_Static_assert(offsetof({name}, {field}) == {offset}, "{name}.{field}");\n'
            for field, (offset, _) in fields.items()
        )
        for name, (size, fields) in layouts().items()
    ]
    source = tmp_path / "layouts.c"
    source.write_text('#include <stddef.h>\n#include "cuda.h"\n' + "".join(lines), encoding="utf-8")
    done = subprocess.run(
        [*find_compiler(), "-c", "-o", str(tmp_path / "layouts.o"), f"-I{headers}", str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


class _Dying:
    """A library whose second call ends the process."""

    def __init__(self) -> None:
        self.calls = 0

    def __getattr__(self, name: str):
        def call(*arguments: object) -> int:
            self.calls += 1
            if self.calls == 2:
                os.abort()
            return 0

        return call


def test_a_program_stops_at_a_signal() -> None:
    answers = execute([["cuInit", 0], ["cuInit", 0], ["cuInit", 0]], Interpreter(_Dying()))
    assert answers == [[0], ["signal", "SIGABRT"]]

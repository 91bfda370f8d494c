"""Compare the recorded answers with the emulated driver's: ``python -m campaigns.conformance.edges.compare [NAME...]``.

It prints each question whose answers differ, ``NAME CASE/QUESTION: RECORDED | OURS``, and how many lines are equal.
`differences.txt` lists those that are known. Where the recorded driver died, an error of ours is as good an answer.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pytest_cudalink import emulator, toolchains
from pytest_cudalink.base import compiler
from pytest_cudalink.emulator import notes

HERE = Path(__file__).parent
#: The source of each program, by its name.
PROGRAMS = {path.stem: path for path in sorted(HERE.glob("*.c"))}
#: Driver, CUDA version and device of `recorded`, where each program has a file with what it printed; those whose names
#: begin so were recorded on two of them.
RELEASE, VERSION, DEVICE, TWO = "580.159.04", "13.0", "h200", "two_"
#: What a case prints whose process does not survive, once for each such process; a question may be called so, too.
_END, _ENDS = re.compile(r"[^/]+/end( \(\d+\))?"), ("dies of ", "exit ", "hangs")


def flags() -> tuple[str, ...]:
    """What the compiler gets for a program: the cuda.h of `VERSION`, and the emulated driver."""
    quiet = ("-O0", "-Wno-deprecated-declarations", "-Wno-format-zero-length")
    headers = (f"-iquote{HERE}", f"-I{toolchains.add(VERSION).include}")
    return (*quiet, *headers, "-pthread", f"-L{emulator.library_folder()}", "-l:libcuda.so.1")


def build(name: str, folder: Path) -> Path:
    """Compile a program."""
    return compiler.build(compiler.Executable(name, (PROGRAMS[name],), flags=flags()), folder)


def run(program: Path, environment: dict[str, str]) -> str:
    """What a program printed."""
    environment = {**environment, "CUDA_CACHE_DISABLE": "1"}
    silent = subprocess.DEVNULL
    # several cases may hang, each for a minute
    done = subprocess.run(
        [program], env=environment, cwd=program.parent, stdout=subprocess.PIPE, stderr=silent, timeout=300, check=True
    )
    return done.stdout.decode(errors="replace")


def ours(name: str, build: Callable[[str, Path], Path] = build) -> dict[str, str]:
    """What the emulated driver answers to the questions of a program.

    `build`: compiles it into a folder.
    """
    device = f"{DEVICE}:2" if name.startswith(TWO) else DEVICE
    planned = emulator.emulation_for(VERSION, release=RELEASE, device=device)
    with tempfile.TemporaryDirectory() as folder:
        # of one run, as the processes of a test are
        environment = {**os.environ, **planned.environment(), notes.VARIABLE: notes.own().path}
        return answers(run(build(name, Path(folder)), environment))


def answers(text: str) -> dict[str, str]:
    """Answers by their questions; one that is asked again has a number."""
    answers: dict[str, str] = {}
    for line in text.splitlines():
        question, _, answer = f"{line.rstrip()} ".partition(": ")
        number = 1
        while (key := question if number == 1 else f"{question} ({number})") in answers:
            number += 1
        answers[key] = answer.rstrip()
    return answers


def recorded(name: str) -> dict[str, str]:
    """What the recorded driver answered to the questions of a program."""
    return answers((HERE / "recorded" / f"{name}.txt").read_text(encoding="utf-8"))


def same(theirs: str, answer: str) -> bool:
    """Whether an answer is the recorded one; where a driver died, any error is."""
    code = answer.partition(" ")[0]
    return theirs == answer or (theirs.startswith("dies of ") and code not in ("0", "nothing", "dies", "hangs"))


def compared(theirs: dict[str, str], answers: dict[str, str]) -> list[str]:
    """The questions that are compared: none that a case asks after a call that the recorded driver did not survive."""
    ends = {question for question, answer in theirs.items() if _END.fullmatch(question) and answer.startswith(_ENDS)}
    ended = {question.rpartition("/end")[0] for question in ends}
    asked = {**theirs, **answers}.keys() - ends
    return [q for q in {**theirs, **answers} if q in asked and (q in theirs or q.partition("/")[0] not in ended)]


def differences(name: str, theirs: dict[str, str], answers: dict[str, str]) -> list[str]:
    """A line for each question whose answers are not the same."""
    asked = compared(theirs, answers)
    pairs = {question: (theirs.get(question, "nothing"), answers.get(question, "nothing")) for question in asked}
    return [f"{name} {question}: {a} | {b}" for question, (a, b) in pairs.items() if not same(a, b)]


def known() -> dict[str, list[str]]:
    """The lines of `differences.txt` by their programs; comments give the reasons of the lines below them."""
    by_program: dict[str, list[str]] = {}
    for line in (HERE / "differences.txt").read_text(encoding="utf-8").splitlines():
        if line and line[0] != "#":
            by_program.setdefault(line.partition(" ")[0], []).append(line)
    return by_program


def main() -> int:
    """Print the differences and the share of equal lines; the exit code is 0 if all are equal."""
    lines, different = 0, 0
    for name in sys.argv[1:] or PROGRAMS:
        theirs, answers = recorded(name), ours(name)
        unlike = differences(name, theirs, answers)
        lines += len(compared(theirs, answers))
        different += len(unlike)
        print(*unlike, sep="\n", end="\n" if unlike else "")
    print(f"{lines - different} of {lines} lines are equal, {100 * (lines - different) / max(lines, 1):.2f} %")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())

"""Which calls end the process: ``python -m campaigns.conformance.programs.deaths OUT.json.xz`` records it.

A question is a valid call of functions.txt with one thing that is wrong: an argument or a field is NULL, or a handle
that was destroyed, or everything is of a context that was destroyed. Each runs in a child. What memory of a destroyed
object holds is up to the allocator: those questions are asked twice, the second time with an allocator that overwrites
what is freed.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from pytest_cudalink.emulator.recorder.execute import Interpreter, Program, execute
from pytest_cudalink.emulator.recorder.questions import load, save

from .api import FUNCTIONS, KINDS, Function
from .generate import Generator, Handle
from .images import image
from .record import _about

#: How many programs of a function are looked at: together they have every field that a handle can be in.
_SEEDS: Final = 24
#: The signs of parameters that take a pointer of the caller.
_POINTERS: Final = ("o", "io", "S", "A", "L", "P")
_ENDS: Final = {
    "ctx": "cuCtxDestroy_v2", "stream": "cuStreamDestroy_v2", "event": "cuEventDestroy_v2", "mod": "cuModuleUnload",
    "lib": "cuLibraryUnload", "link": "cuLinkDestroy", "dptr": "cuMemFree_v2", "mptr": "cuMemFree_v2",
    "hptr": "cuMemFreeHost", "reg": "cuMemHostUnregister", "pool": "cuMemPoolDestroy", "vmh": "cuMemRelease",
    "arr": "cuArrayDestroy", "mip": "cuMipmappedArrayDestroy", "tex": "cuTexObjectDestroy",
    "surf": "cuSurfObjectDestroy", "texref": "cuTexRefDestroy", "graph": "cuGraphDestroy",
    "node": "cuGraphDestroyNode", "exec": "cuGraphExecDestroy", "gctx": "cuGreenCtxDestroy",
}  # fmt: skip
_PRIMARY, _CREATED = "$1", "$3"
#: How many calls programs begin with that make no other object.
_BASE: Final = 5


@dataclass(frozen=True)
class Question:
    """A call with one thing that is wrong."""

    symbol: str
    place: str  # of the argument, from 0 on, and of a field in it: "2", "1.hStream"; "" for "orphan"
    wrong: str  # "null", "dead" or "orphan": its context was destroyed
    kind: str  # of the handle, as functions.txt names it; "pointer" for memory of the caller, "" for "orphan"
    program: Program  # the call is the last

    @property
    def key(self) -> str:
        """What identifies it in a recording."""
        return " ".join((self.symbol, self.wrong, self.place or "-", self.kind or "-"))


def _generator(function: Function, seed: int, *, orphan: bool) -> Generator:
    """A program that has a primary context and another one; the other is current if it is to be destroyed."""
    generator = Generator(seed)
    generator.program = [
        ["cuInit", 0],
        ["cuDevicePrimaryCtxRetain", ["o", "H"], 0],
        ["cuCtxSetCurrent", _PRIMARY],
        ["cuCtxCreate_v2", ["o", "h"], 0, 0],
    ]
    if not orphan:
        generator.program.append(["cuCtxPopCurrent_v2", ["o", "H"]])
    generator.live["ctx"] = [Handle("ctx", _CREATED)]
    if function.group == "green":
        generator.emit_symbol("cuDeviceGetDevResource")
    return generator


def _places(argument: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Each part of an argument that may be a handle or a pointer, with its place."""
    yield path, argument
    if isinstance(argument, list) and argument[0] == "S":
        for name, one in argument[2].items():
            yield from _places(one, f"{path}.{name}")
    elif isinstance(argument, list) and argument[0] in ("A", "P"):
        for at, one in enumerate(argument[1]):
            yield from _places(one, f"{path}[{at}]")
    elif isinstance(argument, list) and argument[0] == "L":
        for at, one in enumerate(argument[2]):
            yield from _places(one, f"{path}[{at}]")


def _replaced(argument: Any, path: str, wanted: str) -> Any:
    """The argument with NULL at a place."""
    if path == wanted:
        return 0
    if isinstance(argument, list) and argument[0] == "S":
        fields = {name: _replaced(one, f"{path}.{name}", wanted) for name, one in argument[2].items()}
        return [*argument[:2], fields, *argument[3:]]
    if isinstance(argument, list) and argument[0] in ("A", "P"):
        return [argument[0], [_replaced(one, f"{path}[{at}]", wanted) for at, one in enumerate(argument[1])]]
    if isinstance(argument, list) and argument[0] == "L":
        return [*argument[:2], [_replaced(one, f"{path}[{at}]", wanted) for at, one in enumerate(argument[2])]]
    return argument


def _kind(generator: Generator, value: Any) -> str:
    """The kind of handle that a value is; "pointer" for memory of the caller, "" for a number."""
    if isinstance(value, list):
        return "pointer" if value[0] in _POINTERS else ""
    if not isinstance(value, str):
        return ""
    if value[0] != "$":
        return "pointer" if value[0] in "@!'&" else ""
    reference = value.partition("+")[0]
    for handles in (generator.live, generator.dead):
        for kind, several in handles.items():
            if any(one.reference == reference for one in several):
                return kind
    return ""


def _ending(program: Program, kind: str, value: str) -> list[tuple[str, Program]]:
    """How a handle ends: what to call it then, and the calls."""
    reference = value.partition("+")[0]
    number = int(reference[1:].partition(".")[0])
    maker = program[number]
    if kind == "aptr":
        free: Program = [["cuMemFreeAsync", reference, 0]]
        return [(kind, [*free, ["cuStreamSynchronize", 0]]), (f"{kind} not synchronized", free)]
    if kind == "va":
        return [(kind, [["cuMemAddressFree", reference, maker[2]]])]
    if kind == "uobj":
        return [(kind, [["cuUserObjectRelease", reference, maker[4]]])]
    if kind == "note":
        return [(kind, [["cuDeviceUnregisterAsyncNotification", 0, reference]])]
    if kind == "log":
        return [(kind, [["cuLogsUnregisterCallback", reference]])]
    if kind == "fun" and maker[0] == "cuModuleGetFunction":
        return [(kind, [["cuModuleUnload", maker[2]]])]
    if kind == "ker" and maker[0] == "cuLibraryGetKernel":
        return [(kind, [["cuLibraryUnload", maker[2]]])]
    found: list[tuple[str, Program]] = []
    if kind in ("node", "cond") and maker[0].startswith(("cuGraphAdd", "cuGraphConditional")):
        found.append((f"{kind} of a graph", [["cuGraphDestroy", maker[2]]]))
    if kind in _ENDS and (kind != "pool" or maker[0] == "cuMemPoolCreate"):
        found.append((kind, [[_ENDS[kind], reference]]))
    return found


def _wrong(function: Function, generator: Generator, *, orphan: bool) -> Iterator[Question]:
    """The questions that come from a valid program."""
    *before, call = generator.program
    kinds: set[str] = set()
    for place, value in (one for at, argument in enumerate(call[1:]) for one in _places(argument, str(at))):
        kind = _kind(generator, value)
        kinds.add(kind)
        if orphan or not kind or (kind == "pointer" and "[" in place):
            continue
        changed = [call[0], *(_replaced(one, str(n), place) for n, one in enumerate(call[1:]))]
        yield Question(function.symbol, place, "null", kind, [*before, changed])
        for name, calls in _ending(generator.program, kind, value) if kind in KINDS else ():
            yield Question(function.symbol, place, "dead", name, [*before, *calls, call])
    if orphan and kinds - {"", "pointer", "ctx"}:
        ends: Program = [["cuCtxDestroy_v2", _CREATED], ["cuCtxSetCurrent", _PRIMARY]]
        yield Question(function.symbol, "", "orphan", "", [*before, *ends, call])


def _is_valid(program: Program, library: ctypes.CDLL) -> bool:
    """Whether a driver takes all calls."""
    answers = execute(program, library, seconds=10, images=image, aliases=False)
    return len(answers) == len(program) and all(one and one[0] in (0, "missing") for one in answers)


def choose(library: ctypes.CDLL) -> list[Question]:
    """All questions; from programs that a driver takes where there are such."""
    taken: dict[str, Question] = {}
    others: dict[str, Question] = {}
    for function in FUNCTIONS:
        if function.symbol == "cuInit" or function.group == "gate":
            continue
        for seed, orphan in product(range(_SEEDS), (False, True)):
            generator = _generator(function, seed, orphan=orphan)
            generator.emit(function, careful=True)
            fresh = [one for one in _wrong(function, generator, orphan=orphan) if one.key not in taken]
            if fresh:
                into = taken if _is_valid(generator.program, library) else others
                for one in fresh:
                    into.setdefault(one.key, one)
    return list({**others, **taken}.values())


#: Calls a function so that a signal that it raises comes back as a number, and the process can say so and end. A signal
#: of another thread ends it at once.
_GUARD: Final = r"""
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <unistd.h>
static sigjmp_buf back;
static volatile sig_atomic_t inside;
static pthread_t thread;
static void died(int number) {
  if (!inside || !pthread_equal(thread, pthread_self())) _exit(128 + number);
  siglongjmp(back, number);
}
void guard_on(void) {
  static char room[65536];
  stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
  struct sigaction action = {.sa_handler = died, .sa_flags = SA_ONSTACK | SA_NODEFER};
  const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  sigaltstack(&stack, NULL);
  for (unsigned at = 0; at < sizeof numbers / sizeof *numbers; at++) sigaction(numbers[at], &action, NULL);
}
typedef uint64_t V;
int guarded(int (*f)(V, V, V, V, V, V, V, V, V, V, V, V, V, V, V, V), const V *v, int *code) {
  int number = sigsetjmp(back, 1);
  if (!number) {
    thread = pthread_self();
    inside = 1;
    *code = f(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11], v[12], v[13], v[14], v[15]);
  }
  inside = 0;
  return number;
}
"""
_MOST_ARGUMENTS: Final = 16
#: How long a call may take, in seconds.
_PATIENCE: Final = 8


class _Died(Exception):  # noqa: N818 (an answer)
    """A signal that a call raised."""


class _Guarded:
    """A libcuda whose calls raise `_Died` where they would end the process."""

    def __init__(self, library: ctypes.CDLL, guard: ctypes.CDLL) -> None:
        self._library, self._guard = library, guard
        guard.guard_on()

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._library, name)

        def call(*arguments: Any) -> int:
            values = [getattr(one, "value", one) or 0 for one in arguments]
            if any(not isinstance(one, int) for one in values):  # a structure or a float by value
                return int(function(*arguments))
            given = (ctypes.c_uint64 * _MOST_ARGUMENTS)(*(one & (1 << 64) - 1 for one in values))
            code = ctypes.c_int()
            if number := self._guard.guarded(function, given, ctypes.byref(code)):
                raise _Died(signal.Signals(number).name)
            return code.value

        return call


def _is_sound(library: _Guarded, primary: int) -> bool:
    """Whether the process can go on: its context is current and works."""
    made = ctypes.c_uint64()
    try:
        return not (
            library.cuCtxSetCurrent(primary)
            or library.cuMemAlloc_v2(ctypes.addressof(made), 64)
            or library.cuMemFree_v2(made.value)
            or library.cuStreamCreate(ctypes.addressof(made), 1)
            or library.cuStreamSynchronize(made.value)
            or library.cuStreamDestroy_v2(made.value)
        )
    except _Died:
        return False


class _Asker:
    """A process that asks one question after the other; those that end no context share one."""

    def __init__(self, library: ctypes.CDLL, guard: ctypes.CDLL) -> None:
        self.library = _Guarded(library, guard)
        self.keep: list[Interpreter] = []
        self.base: Interpreter | None = None

    def _interpreter(self, question: Question) -> tuple[Interpreter, int]:
        """An interpreter, and how many calls of the program it has made."""
        fresh = Interpreter(self.library, image, aliases=False)  # type: ignore[arg-type] (it has its functions)
        self.keep.append(fresh)  # what it gave to calls must live
        if question.wrong == "orphan" or "$3" in json.dumps(question.program[_BASE:]):
            return fresh, 0
        if self.base is None:
            self.base = Interpreter(self.library, image, aliases=False)  # type: ignore[arg-type]
            for number, call in enumerate(question.program[:_BASE]):
                self.base.call(number, call)
        fresh.values = list(self.base.values)
        fresh.names = dict(self.base.names)
        return fresh, _BASE

    def ask(self, question: Question) -> list[Any]:
        """What the last call answered: its code, or the signal; what failed before it, if something did."""
        fresh, done = self._interpreter(question)
        early: list[Any] = []
        last = len(question.program) - 1
        for number, call in enumerate(question.program[done:], done):
            try:
                if number == last:  # what it gives is not looked at
                    fresh.outs = []
                    found = getattr(self.library, call[0])(*(fresh.argument(one) for one in call[1:]))
                else:
                    found = (fresh.call(number, call) or [None])[0]
            except AttributeError:
                found = "missing"
            except _Died as signal_of_it:
                found = str(signal_of_it)
            if number == last or isinstance(found, str):
                return [found, *([early] if early else []), *([number] if number < last else [])]
            if found:
                early.append([number, call[0], found])
        return [None]


def _ask_some(several: list[Question], guard: str, pipe: int, *, perturb: bool) -> None:
    """Answer questions until one raises a signal or is unsound; each has a line when it begins and one when it ends."""
    if perturb:
        ctypes.CDLL(None).mallopt(-6, 165)  # M_PERTURB: glibc overwrites what is freed
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    asker = _Asker(ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(guard))
    signal.alarm(60)  # the first makes a context
    for one in several:
        os.write(pipe, json.dumps([one.key]).encode() + b"\n")
        found = asker.ask(one)
        os.write(pipe, json.dumps([one.key, found]).encode() + b"\n")
        if isinstance(found[0], str):
            break  # what the signal left undone would answer the next one
        signal.alarm(_PATIENCE)
        primary = (asker.base or asker.keep[-1]).values[1][0][1]
        if not _is_sound(asker.library, primary):
            break


def _work(several: list[Question], guard: str, file: Path, deadline: float, *, perturb: bool) -> None:
    """Answer questions into a file, in one process after the other."""
    with file.open("w", encoding="utf-8") as out:
        left = {one.key: one for one in several}
        while left and time.monotonic() < deadline:
            reading, writing = os.pipe()
            child = os.fork()
            if not child:
                os.close(reading)
                silent = os.open(os.devnull, os.O_RDWR)
                for stream in (0, 1, 2):
                    os.dup2(silent, stream)
                try:
                    _ask_some(list(left.values()), guard, writing, perturb=perturb)
                except BaseException as error:  # noqa: BLE001 (a mistake of ours must be seen in the recording)
                    os.write(writing, json.dumps(["error", repr(error)]).encode() + b"\n")
                finally:
                    os._exit(0)
            os.close(writing)
            begun, number = "", 0
            with os.fdopen(reading, encoding="utf-8") as pipe:
                for number, line in enumerate(pipe, 1):
                    key, *found = json.loads(line)
                    begun = "" if found else key
                    if found:
                        left.pop(key, None)
                        out.write(json.dumps([key, perturb, found[0], number <= 2]) + "\n")
                        out.flush()
                    if time.monotonic() > deadline:
                        os.kill(child, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if begun and begun in left and time.monotonic() < deadline:
                ended = signal.Signals(-code if code < 0 else code - 128).name if code < 0 or code > 128 else str(code)
                out.write(json.dumps([begun, perturb, ["hangs" if ended == "SIGALRM" else ended], number <= 1]) + "\n")
                del left[begun]
            elif not number:
                break


def _work_apart(several: list[Question], guard: str, file: Path, deadline: float, *, perturb: bool) -> None:
    """Answer questions, each in its own process."""
    for at, one in enumerate(several):
        _work([one], guard, file.with_suffix(f".{at}.jsonl"), deadline, perturb=perturb)


def _answers(
    work: Callable[..., None], several: Mapping[bool, list[Question]], processes: int, guard: str, seconds: float
) -> Iterator[tuple[str, bool, list[Any]]]:
    """The answers to some questions: the key of each, whether freed memory was overwritten, and what was answered."""
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        workers = []
        for perturb, job in product(several, range(processes)):
            given = (several[perturb][job::processes], guard, Path(folder, f"{job}-{perturb}.jsonl"), deadline)
            workers.append(
                multiprocessing.get_context("fork").Process(target=work, args=given, kwargs={"perturb": perturb})
            )
        for worker in workers:
            worker.start()
        for worker in workers:  # one that hangs in the driver must not take the recording with it
            worker.join(max(0.0, deadline + 10 - time.monotonic()))
            worker.kill()
        for line in (line for path in Path(folder).glob("*.jsonl") for line in path.read_text("utf-8").splitlines()):
            with suppress(ValueError):
                key, perturb, found, _ = json.loads(line)
                yield key, perturb, found


def record(several: list[Question], processes: int, seconds: float, apart: int) -> dict[str, Any]:
    """The recording: of each question what it answered, and with an allocator that overwrites what is freed.

    `apart`: how many of those that ended in a signal are asked again, each in its own process.
    """
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    with multiprocessing.get_context("fork").Pool(1) as pool:  # this process stays uninitialized
        about = pool.apply(_about)
    rows: dict[str, list[Any]] = {one.key: [one.program, None, None] for one in several}
    with tempfile.TemporaryDirectory() as folder:
        source, guard = Path(folder, "guard.c"), str(Path(folder, "guard.so"))
        source.write_text(_GUARD, encoding="utf-8")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-pthread", source, "-o", guard], check=True)
        both = {False: several, True: [one for one in several if one.wrong != "null"]}
        for key, perturb, found in _answers(_work, both, processes, guard, seconds):
            if key in rows:
                rows[key][1 + perturb] = found
            else:
                about.setdefault("errors", []).append(found)
        died = [one for one in several if str((rows[one.key][1] or [0])[0]).startswith("SIG")]
        chosen = {False: died[:: max(1, len(died) // apart)][:apart] if apart else []}
        about["apart"] = {
            key: [rows[key][1], found] for key, _, found in _answers(_work_apart, chosen, processes, guard, 60)
        }
    rows = {key: row for key, row in rows.items() if row[1] or row[2]}
    return {**about, "date": time.strftime("%Y-%m-%d", time.gmtime()), "rows": dict(sorted(rows.items()))}


def main() -> int:
    """Choose questions, or record and write one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--choose", action="store_true", help="write the questions; on an emulated driver")
    parser.add_argument("--questions", type=Path, help="what --choose wrote")
    parser.add_argument("--processes", type=int, default=2, help="twice as many run")
    parser.add_argument("--seconds", type=float, default=220, help="stop after this time with what is there")
    parser.add_argument("--apart", type=int, default=40, help="how many deaths are repeated in their own process")
    parser.add_argument("--add-to", type=Path, help="a recording of this driver, whose answers are kept")
    options = parser.parse_args()
    started = time.monotonic()
    if options.choose:
        several = choose(ctypes.CDLL("libcuda.so.1"))
        save(options.out, [asdict(one) for one in several])
        print(f"{len(several)} questions in {time.monotonic() - started:.0f} s")
        return 0
    earlier = load(options.add_to)["rows"] if options.add_to else {}
    several = [one for one in (Question(**one) for one in load(options.questions)) if one.key not in earlier]
    found = record(several, options.processes, options.seconds, options.apart)
    print(f"{len(found['rows'])} of {len(several)} questions in {time.monotonic() - started:.0f} s")
    save(options.out, {**found, "rows": dict(sorted({**earlier, **found["rows"]}.items()))})
    return 0 if found["rows"] else 2


if __name__ == "__main__":
    sys.exit(main())

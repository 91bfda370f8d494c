"""Random programs of streams, gates, events, written words, host functions and graphs, judged by CUDA's rules of order.

    python -m campaigns.hardware.order [PROGRAMS] [FIRST_SEED] [--seconds=N]

The judge knows the rules of the CUDA Driver API alone, and nothing of how a driver keeps them: work of a stream is done
in its order, behind the events that the stream waits for, and blocking streams wait for the legacy one and it for them.
It names each order that the rules forbid: a host function before another one that precedes it, a word that was written
behind a closed gate, a stream or event that is ready too early, or is not ready although nothing holds it up.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field
from typing import Any

#: Streams: two blocking ones, two others, the legacy one, and the default ones of two threads.
STREAMS = ("a", "b", "m", "n", "legacy", "own", "own2")
NON_BLOCKING = ("m", "n")
EVENTS = range(4)
STEPS = 24
#: How long a driver may take for work that nothing holds up, in seconds: longer than any machine needs.
PATIENCE = 5.0

HostFunction = ctypes.CFUNCTYPE(None, c_void_p)
Step = tuple[str, Any, Any]


def program_of(seed: int) -> Iterator[Step]:
    """The steps of a program: what is submitted to which stream, which gate is opened, and what is asked."""
    choose = random.Random(seed)
    closed: list[int] = []
    gates = 0
    for _ in range(STEPS):
        kind = choose.choices(
            ("gate", "host", "write", "record", "wait", "graph", "open", "query", "ask"), (3, 5, 5, 4, 4, 2, 3, 4, 3)
        )[0]
        stream = choose.choice(STREAMS)
        if kind == "gate":
            closed.append(gates)
            yield kind, stream, gates
            gates += 1
        elif kind == "open":
            if closed:
                yield kind, closed.pop(choose.randrange(len(closed))), None
        elif kind in ("record", "wait"):
            yield kind, stream, choose.choice(EVENTS)
        elif kind == "ask":
            yield kind, choose.choice(EVENTS), None
        else:
            yield kind, stream, None
    choose.shuffle(closed)
    for gate in closed:
        yield "open", gate, None


@dataclass
class Work:
    """A piece of submitted work: what precedes it by the rules, and the gate that it stands for."""

    before: list[Work]
    gate: int | None = None
    doubtful: list[Work] = field(default_factory=list)  # may precede it, or not: drivers differ from the pages


class Judge:
    """What the rules say of work that was submitted so far."""

    def __init__(self) -> None:
        self.last: dict[str, Work] = {}
        self.events: dict[int, Work | None] = {}
        self.opened: set[int] = set()

    def submit(self, stream: str, *, gate: int | None = None, event: int | None = None, empty: bool = False) -> Work:
        """Add work to a stream, behind what precedes it; `empty`: a record or a wait, which does nothing itself."""
        own = [self.last[stream]] if stream in self.last else []
        if stream == "legacy":
            others = [last for name, last in self.last.items() if name not in (*NON_BLOCKING, "legacy")]
        else:
            others = [self.last["legacy"]] if "legacy" in self.last and stream not in NON_BLOCKING else []
        # whether a wait, or a record of a stream without work, waits for other streams is not written anywhere
        doubtful = event is not None or (empty and stream != "legacy")
        work = Work([*own, *([] if doubtful else others)], gate, others if doubtful else [])
        if event is not None and (recorded := self.events.get(event)):
            work.before.append(recorded)
        self.last[stream] = work
        return work

    def _reach(self, work: Work | None, *, doubtful: bool) -> Iterator[Work]:
        seen: set[int] = set()
        left = [work] if work else []
        while left:
            one = left.pop()
            if id(one) in seen:
                continue
            seen.add(id(one))
            yield one
            left += [*one.before, *(one.doubtful if doubtful else ())]

    def is_held(self, work: Work | None) -> bool:
        """Whether work must be unfinished: a closed gate precedes it."""
        return any(one.gate is not None and one.gate not in self.opened for one in self._reach(work, doubtful=False))

    def is_free(self, work: Work | None) -> bool:
        """Whether nothing can hold work up."""
        return not any(one.gate is not None and one.gate not in self.opened for one in self._reach(work, doubtful=True))

    def precedes(self, first: Work, second: Work) -> bool:
        """Whether work is done before other work in every order that the rules allow."""
        return any(one is first for one in self._reach(second, doubtful=False))


class Machine:
    """The driver of this machine, with what programs use."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.context = c_void_p()
        self.ok(self.cuda.cuInit(0))
        self.ok(self.cuda.cuDevicePrimaryCtxRetain(byref(self.context), 0))
        self.ok(self.cuda.cuCtxSetCurrent(self.context))
        self.second = ThreadPoolExecutor(1, initializer=lambda: self.ok(self.cuda.cuCtxSetCurrent(self.context)))
        made = c_void_p()
        self.ok(self.cuda.cuMemHostAlloc(byref(made), c_size_t(4096), 0))
        self.words = made.value or 0

    def ok(self, code: int) -> None:
        """Fail on anything but CUDA_SUCCESS."""
        if code:
            raise RuntimeError(f"the driver answers {code} where 0 is expected")

    def word(self, number: int) -> c_uint32:
        """A word of pinned memory."""
        return c_uint32.from_address(self.words + 4 * number)


class Run:
    """A program that runs on a machine, step by step, and what the rules say against it."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.cuda, self.judge = machine, machine.cuda, Judge()
        self.problems: list[str] = []
        self.handles: dict[str, c_void_p | None] = {"legacy": c_void_p(1), "own": c_void_p(2), "own2": c_void_p(2)}
        for name in ("a", "b", *NON_BLOCKING):
            made = c_void_p()
            machine.ok(self.cuda.cuStreamCreate(byref(made), int(name in NON_BLOCKING)))
            self.handles[name] = made
        self.events = [c_void_p() for _ in EVENTS]
        for event in self.events:
            machine.ok(self.cuda.cuEventCreate(byref(event), 2))
        self.written: dict[int, Work] = {}
        self.calls: dict[int, Work] = {}
        self.called: list[int] = []
        self.lock = threading.Lock()
        self.graphs: list[tuple[c_void_p, c_void_p]] = []
        self.function = HostFunction(self._called)
        ctypes.memset(machine.words, 0, 4096)

    def _called(self, number: int) -> None:
        with self.lock:
            self.called.append(number)

    def on(self, stream: str, call: Callable[[], int]) -> int:
        """The answer of a call from the thread that a stream belongs to."""
        return int(self.machine.second.submit(call).result() if stream == "own2" else call())

    def _call(self, work: Work) -> c_void_p:
        number = len(self.calls) + 1
        self.calls[number] = work
        return c_void_p(number)

    def step(self, kind: str, where: Any, what: Any) -> None:
        """Make one step."""
        cuda, judge, machine = self.cuda, self.judge, self.machine
        if kind == "open":
            judge.opened.add(where)
            machine.word(where).value = 1
        elif kind == "query":
            handle = self.handles[where]
            work = Work([judge.last[where]] if where in judge.last else [])
            if where == "legacy":
                work.before += [one for name, one in judge.last.items() if name not in NON_BLOCKING]
            self.ask(f"stream {where}", work, lambda: self.on(where, lambda: cuda.cuStreamQuery(handle)))
        elif kind == "ask":
            self.ask(f"event {where}", judge.events.get(where), lambda: cuda.cuEventQuery(self.events[where]))
        else:
            machine.ok(self.on(where, lambda: self.submit(kind, where, what)))

    def submit(self, kind: str, stream: str, what: Any) -> int:
        """Submit work to a stream."""
        cuda, judge, handle = self.cuda, self.judge, self.handles[stream]
        if kind == "gate":
            judge.submit(stream, gate=what)
            address = c_uint64(self.machine.words + 4 * what)
            return int(cuda.cuStreamWaitValue32_v2(handle, address, 1, 0))
        if kind == "write":
            number = 512 + len(self.written)
            self.written[number] = judge.submit(stream)
            return int(cuda.cuStreamWriteValue32_v2(handle, c_uint64(self.machine.words + 4 * number), 1, 0))
        if kind == "record":
            judge.events[what] = judge.submit(stream, empty=True)
            return int(cuda.cuEventRecord(self.events[what], handle))
        if kind == "wait":
            judge.submit(stream, event=what, empty=True)
            return int(cuda.cuStreamWaitEvent(handle, self.events[what], 0))
        if kind == "graph":
            return self.launch(stream, handle)
        return int(cuda.cuLaunchHostFunc(handle, self.function, self._call(judge.submit(stream))))

    def launch(self, stream: str, handle: c_void_p | None) -> int:
        """Launch a graph of two host functions in a row."""
        cuda, graph, executable = self.cuda, c_void_p(), c_void_p()
        self.machine.ok(cuda.cuGraphCreate(byref(graph), 0))
        before: c_void_p | None = None
        for _ in range(2):
            node = c_void_p()
            parameters = (c_void_p * 2)(ctypes.cast(self.function, c_void_p), self._call(self.judge.submit(stream)))
            behind = byref(before) if before else None
            code = cuda.cuGraphAddHostNode(byref(node), graph, behind, c_size_t(before is not None), parameters)
            self.machine.ok(code)
            before = node
        self.machine.ok(cuda.cuGraphInstantiateWithFlags(byref(executable), graph, c_uint64(0)))
        self.graphs.append((graph, executable))
        return int(cuda.cuGraphLaunch(executable, handle))

    def ask(self, name: str, work: Work | None, query: Callable[[], int]) -> None:
        """Compare an answer with the rules: 600 behind a closed gate, and in the end 0 where nothing holds work up."""
        answer = query()
        if answer not in (0, 600):
            self.problems.append(f"{name} answers {answer}")
        elif self.judge.is_held(work):
            if answer == 0:
                self.problems.append(f"{name} is ready behind a closed gate")
        elif self.judge.is_free(work):
            limit = time.monotonic() + PATIENCE
            while answer == 600 and time.monotonic() < limit:
                answer = query()
            if answer:
                self.problems.append(f"{name} is not ready although nothing holds it up")
        for number, one in self.written.items():
            if self.judge.is_held(one) and self.machine.word(number).value:
                self.problems.append(f"word {number - 512} was written behind a closed gate")

    def end(self) -> list[str]:
        """Wait for everything, and judge the whole order."""
        self.machine.ok(self.cuda.cuCtxSynchronize())
        unset = [number for number in self.written if not self.machine.word(number).value]
        self.problems += [f"word {number - 512} was not written" for number in unset]
        places = {number: place for place, number in enumerate(self.called)}
        if sorted(places) != sorted(self.calls) or len(self.called) != len(self.calls):
            self.problems.append(f"host functions {self.called} were called, not each of {sorted(self.calls)} once")
            return self.problems
        for first, earlier in self.calls.items():
            for second, later in self.calls.items():
                if first != second and places[first] > places[second] and self.judge.precedes(earlier, later):
                    self.problems.append(f"host function {second} was called before {first}")
        for graph, executable in self.graphs:
            self.machine.ok(self.cuda.cuGraphExecDestroy(executable))
            self.machine.ok(self.cuda.cuGraphDestroy(graph))
        for event in self.events:
            self.machine.ok(self.cuda.cuEventDestroy_v2(event))
        for name in ("a", "b", *NON_BLOCKING):
            self.machine.ok(self.cuda.cuStreamDestroy_v2(self.handles[name]))
        return self.problems


def problems_of(machine: Machine, seed: int) -> list[str]:
    """What the rules say against one run of a program."""
    run = Run(machine)
    for step in program_of(seed):
        run.step(*step)
    return run.end()


def main() -> int:
    """Run programs; print what was forbidden, and how many were lawful, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=int, nargs="?", default=200)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--seconds", type=float, default=600)
    options = parser.parse_args()
    machine, found, count = Machine(), {}, 0
    limit = time.monotonic() + options.seconds
    for seed in range(options.first, options.first + options.programs):
        if time.monotonic() > limit:
            break
        count += 1
        if problems := problems_of(machine, seed):
            found[seed] = problems
    print(json.dumps({"programs": count, "lawful": count - len(found), "problems": found}))
    sys.stdout.flush()
    os._exit(bool(found))  # whatever a real driver still has to do at exit


if __name__ == "__main__":
    main()

"""Random programs of streams that use the same memory, compared with every path through their edges.

    python -m tests.emulator.programs.order_programs PROGRAMS FIRST_SEED

The search for paths knows the written rules of streams and events alone, and nothing of clocks: two accesses are
unordered if no path of edges leads from either to the other. The driver's check may name only such pairs, and in
programs without gates and schedules it must name one for each work that has one.
"""

from __future__ import annotations

import ctypes
import random
import re
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass, field
from typing import Any

from pytest_cudalink.emulator import control
from tests.emulator.cu import allocate, cuda, event, new, ok, pinned, start, stream

STREAMS = ("a", "b", "m", "n", "legacy", "own", "own2")
NON_BLOCKING = ("m", "n")
STEPS, CELLS, CELL = 30, 6, 64


@dataclass(eq=False)
class Node:
    """A piece of work: the works that are before it or may be, the cells that it reads and writes, and its step."""

    before: list[Node]
    doubtful: list[Node] = field(default_factory=list)
    step: int = -1
    reads: frozenset[int] = frozenset()
    writes: frozenset[int] = frozenset()
    all_before: set[Node] = field(default_factory=set)
    all_doubtful: set[Node] = field(default_factory=set)

    def close(self) -> None:
        """Find all works that a path leads from; those before are closed."""
        for node in self.before:
            self.all_before |= {node, *node.all_before}
        for node in (*self.before, *self.doubtful):
            self.all_doubtful |= {node, *node.all_doubtful}

    def conflicts(self, other: Node) -> bool:
        """Whether one of the two writes what the other one uses."""
        return bool(self.writes & (other.reads | other.writes) or other.writes & self.reads)


class Edges:
    """The rules: what each work is behind."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.last: dict[str, Node] = {}
        self.events: dict[int, Node] = {}
        self.known: list[Node] = []  # to the host
        self.launched: Node | None = None

    def add(self, before: Iterable[Node | None], **access: Any) -> Node:
        """Add a work behind others, and behind all that the host knows is done."""
        node = Node([node for node in [*before, *self.known] if node], **access)
        node.close()
        self.nodes.append(node)
        return node

    def others(self, stream: str) -> list[Node | None]:
        """What a stream waits for because of the legacy one."""
        if stream == "legacy":
            return [last for name, last in self.last.items() if name not in (*NON_BLOCKING, "legacy")]
        return [] if stream in NON_BLOCKING else [self.last.get("legacy")]

    def submit(self, stream: str, **access: Any) -> Node:
        self.last[stream] = self.add([self.last.get(stream), *self.others(stream)], **access)
        return self.last[stream]

    def record(self, stream: str, event: int) -> None:
        """A record waits like other work; on a blocking stream also for that of the legacy one (recorded programs)."""
        self.events[event] = node = self.add([self.last.get(stream), *self.others(stream)])
        if stream == "legacy":
            self.last[stream] = node

    def wait(self, stream: str, event: int) -> None:
        """A wait of the legacy stream may be no work, and so wait for no other stream."""
        others = [other for other in self.others(stream) if other] if stream == "legacy" else []
        self.last[stream] = self.add([self.last.get(stream), self.events.get(event)], doubtful=others)

    def knows(self, stream: str) -> None:
        """The host waited for a stream."""
        others = self.others(stream) if stream == "legacy" else []
        self.known += [node for node in [self.last.get(stream), *others] if node]

    def unordered(self, *, doubtful: bool = False) -> set[tuple[int, int]]:
        """The pairs of steps, the earlier one first, with accesses that no path connects, nor a doubtful one."""
        used = [node for node in self.nodes if node.reads or node.writes]
        before = {node: node.all_doubtful if doubtful else node.all_before for node in used}
        return {
            (min(work.step, other.step), max(work.step, other.step))
            for at, work in enumerate(used)
            for other in used[:at]
            if work.conflicts(other) and other not in before[work] and work not in before[other]
        }


class Program:
    """Runs the steps of a seed on the driver, and enters each into the edges."""

    def __init__(self, machine: Machine, seed: int, *, gates: bool) -> None:
        self.machine, self.edges, self.gates = machine, Edges(), gates
        self.choose = random.Random(seed)
        self.closed: list[int] = []
        self.step = 0

    def call(self, stream: str, function: str, *arguments: object) -> int:
        """Call the driver from a line of this step's own, in the thread of the stream."""
        code = compile("call(*arguments)", f"<op {self.step}>", "eval")
        names = {"call": getattr(cuda, function), "arguments": arguments}
        if stream == "own2":
            return int(self.machine.second.submit(eval, code, names).result())
        return int(eval(code, names))

    def cells(self) -> tuple[int, int]:
        """Some cells that lie side by side: the first, and how many."""
        first = self.choose.randrange(CELLS)
        return first, self.choose.randint(1, min(3, CELLS - first))

    def work(self, submit: Callable[[c_uint64, c_size_t, c_uint64 | None], None]) -> dict[str, frozenset[int]]:
        """Submit a copy or a filling; returns what it reads and writes."""
        first, count = self.cells()
        base, size = self.machine.memory, c_size_t(CELL * count)
        if self.choose.random() < 0.5:
            submit(c_uint64(base + CELL * first), size, None)
            return {"writes": frozenset(range(first, first + count))}
        source = self.choose.randrange(CELLS - count + 1)
        submit(c_uint64(base + CELL * (first + CELLS)), size, c_uint64(base + CELL * source))
        cells = frozenset(range(first + CELLS, first + CELLS + count))
        return {"reads": frozenset(range(source, source + count)), "writes": cells}

    def use(self, stream: str) -> None:
        handle = self.machine.streams[stream]

        def submit(to: c_uint64, size: c_size_t, source: c_uint64 | None) -> None:
            if source is None:
                ok(self.call(stream, "cuMemsetD8Async", to, c_uint(1), size, handle))
            else:
                ok(self.call(stream, "cuMemcpyDtoDAsync_v2", to, source, size, handle))

        self.edges.submit(stream, step=self.step, **self.work(submit))

    def upload(self, _stream: str) -> None:
        """Copy pageable memory, which waits for what the legacy stream would wait for, and is done for that alone."""
        first, count = self.cells()
        self.edges.knows("legacy")
        to, size = self.machine.memory + CELL * first, CELL * count
        ok(self.call("legacy", "cuMemcpyHtoD_v2", to, ctypes.addressof(self.machine.pageable), size))
        self.edges.submit("legacy", step=self.step, writes=frozenset(range(first, first + count)))

    def launch(self, stream: str) -> None:
        """Launch a graph of some nodes, each behind some of those before; once more at times, in another stream."""
        graph, context = new(cuda.cuGraphCreate, 0), self.machine.context
        nodes: list[c_void_p] = []
        added: list[tuple[list[int], dict[str, frozenset[int]]]] = []
        for number in range(self.choose.randint(1, 4)):
            behind = [earlier for earlier in range(number) if self.choose.random() < 0.4]
            first, count = self.cells()
            values = (c_uint64 * 6)(self.machine.memory + CELL * first, 0, 1 | 1 << 32, CELL * count, 1, 0)
            before = (c_void_p * len(behind))(*(nodes[earlier].value for earlier in behind))
            nodes.append(new(cuda.cuGraphAddMemsetNode, graph, before, c_size_t(len(behind)), values, context))
            added.append((behind, {"writes": frozenset(range(first, first + count))}))
        executable = new(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(0))
        launched: Node | None = None
        for where in [stream, self.choose.choice(STREAMS)][: self.choose.randint(1, 2)]:
            ok(self.call(where, "cuGraphLaunch", executable, self.machine.streams[where]))
            head = self.edges.add([self.edges.last.get(where), *self.edges.others(where), launched])
            ends: list[Node] = []
            for behind, what in added:
                ends.append(self.edges.add([head, *(ends[earlier] for earlier in behind)], step=self.step, **what))
            self.edges.last[where] = launched = self.edges.add([head, *ends])
        self.machine.graphs.append((graph, executable))

    def record(self, stream: str) -> None:
        event = self.choose.randrange(4)
        ok(self.call(stream, "cuEventRecord", self.machine.events[event], self.machine.streams[stream]))
        self.edges.record(stream, event)

    def wait(self, stream: str) -> None:
        """Let a stream wait for an event, but for none of the program before, which is no edge of this one."""
        event = self.choose.randrange(4)
        if event in self.edges.events:
            ok(self.call(stream, "cuStreamWaitEvent", self.machine.streams[stream], self.machine.events[event], 0))
            self.edges.wait(stream, event)

    def query(self, stream: str) -> None:
        """Ask a stream whether it is done."""
        if self.call(stream, "cuStreamQuery", self.machine.streams[stream]) == 0:
            self.edges.knows(stream)

    def ask(self, stream: str) -> None:
        """Ask an event whether it is done."""
        event = self.choose.randrange(4)
        if event in self.edges.events and self.call(stream, "cuEventQuery", self.machine.events[event]) == 0:
            self.edges.known.append(self.edges.events[event])

    def gate(self, stream: str) -> None:
        """Let a stream wait until the host writes a word."""
        self.machine.word(self.step).value = 0
        address = c_uint64(self.machine.words + 4 * self.step)
        ok(self.call(stream, "cuStreamWaitValue32_v2", self.machine.streams[stream], address, c_uint(1), 0))
        self.edges.submit(stream)
        self.closed.append(self.step)

    def open(self, _stream: str = "") -> None:
        if self.closed:
            self.machine.word(self.closed.pop(self.choose.randrange(len(self.closed)))).value = 1

    def run(self) -> None:
        """Make all steps, and wait for everything."""
        kinds: dict[Callable[[str], None], int] = {
            self.use: 12,
            self.record: 6,
            self.wait: 6,
            self.query: 6,
            self.ask: 3,
            self.launch: 2,
            self.upload: 2 * (not self.gates),
            self.gate: 2 * self.gates,
            self.open: 1,
        }
        for step in range(self.choose.randint(3, STEPS)):
            self.step = step
            (kind,) = self.choose.choices(list(kinds), list(kinds.values()))
            kind(self.choose.choice(STREAMS))
        while self.closed:
            self.open()
        ok(cuda.cuCtxSynchronize())


class Machine:
    """The driver of this process, its streams and its memory."""

    def __init__(self) -> None:
        self.context = start()
        self.pageable = ctypes.create_string_buffer(3 * CELL)
        self.second = ThreadPoolExecutor(1, initializer=lambda: ok(cuda.cuCtxSetCurrent(self.context)))
        self.streams: dict[str, c_void_p] = {"legacy": c_void_p(1), "own": c_void_p(2), "own2": c_void_p(2)}
        self.streams |= {name: stream(int(name in NON_BLOCKING)) for name in ("a", "b", *NON_BLOCKING)}
        self.events = [event(2) for _ in range(4)]
        self.memory, self.words = allocate(2 * CELLS * CELL), pinned()
        self.graphs: list[tuple[c_void_p, c_void_p]] = []
        driver = control.attach(cuda)
        assert driver is not None
        self.driver = driver
        driver.start_watching()

    def word(self, number: int) -> c_uint:
        """A word of pinned memory."""
        return c_uint.from_address(self.words + 4 * number)

    def unordered_pairs(self) -> set[tuple[int, int]]:
        """The pairs of steps that the check named since it was asked last."""
        violations = self.driver.violations
        self.driver.consume(violations)
        return {self._steps(violation.history[-1], violation.python_stack[-1]) for violation in violations}

    @staticmethod
    def _steps(*lines: str) -> tuple[int, int]:
        first, second = sorted(int(re.findall(r"<op (\d+)>", line)[0]) for line in lines)
        return first, second

    def compare(self, seed: int, *, gates: bool, late: bool) -> tuple[list[str], int, int]:
        """What the check and the search say that cannot both be true; how many pairs it named, and are unordered.

        A gate may be behind all that the host knew before it opened it, so that fewer pairs are named.
        """
        self.driver.check_order(on=True)
        if late:
            self.driver.start_schedule(seed)
        program = Program(self, seed, gates=gates)
        program.run()
        self.driver.end_schedule()
        pairs, unordered = self.unordered_pairs(), program.edges.unordered()
        self.driver.check_order(on=False)
        for graph, executable in self.graphs:
            ok(cuda.cuGraphExecDestroy(executable))
            ok(cuda.cuGraphDestroy(graph))
        self.graphs.clear()
        wrong = [f"{seed}: {pair} is ordered, and was named" for pair in sorted(pairs - unordered)]
        named = {second for _, second in pairs}
        if late and not gates and not pairs and (certain := program.edges.unordered(doubtful=True)):
            wrong.append(f"{seed}: none of {sorted(certain)} was named")
        if not late and not gates:
            wrong += [f"{seed}: {pair} was not named" for pair in sorted(unordered) if pair[1] not in named]
        return wrong, len(pairs), len(unordered)


def main() -> None:
    """Compare programs, some with gates, and some under the schedule of their seed; print what is wrong."""
    count, first = map(int, sys.argv[1:3])
    machine = Machine()
    wrong: list[str] = []
    named = in_order = 0
    for seed in range(first, first + count):
        problems, pairs, unordered = machine.compare(seed, gates=bool(seed & 1), late=bool(seed & 2))
        wrong += problems
        named += pairs
        in_order += not unordered
    machine.driver.stop_watching()
    print(*wrong, f"{count} programs, {in_order} of them in order, {named} pairs named", sep="\n")
    sys.stdout.flush()
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

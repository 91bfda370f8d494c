"""Graphs against a model in Python: nodes that fill memory, edges, clones, executables; run on an emulated driver."""

from __future__ import annotations

import struct
from ctypes import Array, addressof, byref, c_char, c_int, c_size_t, c_uint64, c_void_p, create_string_buffer
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from tests.emulated.cu import allocate, cuda, get, new, ok, start

CONTEXT = start()
CELLS = 8
MEMORY = allocate(CELLS)
cuda.cuGraphInstantiateWithFlags.argtypes = [c_void_p, c_void_p, c_uint64]


def fill(cell: int, value: int) -> Array[c_char]:
    """CUDA_MEMSET_NODE_PARAMS of one byte."""
    return create_string_buffer(struct.pack("QQIIQQ", MEMORY + cell, 0, value, 1, 1, 1))


class Model:
    """A graph: what its nodes fill, and what they depend on."""

    def __init__(self) -> None:
        self.fills: dict[int, tuple[int, int]] = {}
        self.before: dict[int, set[int]] = {}

    def has_circle(self) -> bool:
        left = {node: set(before) for node, before in self.before.items()}
        while free := [node for node, before in left.items() if not before]:
            for node in free:
                del left[node]
            for before in left.values():
                before.difference_update(free)
        return bool(left)

    def ancestors(self, node: int) -> set[int]:
        found: set[int] = set()
        todo = [node]
        while todo:
            todo += self.before[todo.pop()] - found
            found.update(todo)
        return found

    def last_writers(self, cell: int) -> set[int]:
        """The values that may stand in a cell after a launch."""
        writers = [node for node, (where, _) in self.fills.items() if where == cell]
        return {self.fills[node][1] for node in writers if not any(node in self.ancestors(other) for other in writers)}


class Graphs(RuleBasedStateMachine):
    """Changes to graphs, each made to the driver's and to the model's."""

    graphs = Bundle("graphs")
    executables = Bundle("executables")

    @rule(target=graphs)
    def create(self) -> Any:
        return new(cuda.cuGraphCreate, 0), Model()

    @rule(graph=graphs, cell=st.integers(0, CELLS - 1), value=st.integers(1, 255), data=st.data())
    def add(self, graph: Any, cell: Any, value: Any, data: Any) -> None:
        handle, model = graph
        on = data.draw(st.lists(st.sampled_from(list(model.fills)), max_size=3, unique=True)) if model.fills else []
        nodes = (c_void_p * len(on))(*on) if on else None
        node = get(cuda.cuGraphAddMemsetNode, handle, nodes, c_size_t(len(on)), fill(cell, value), CONTEXT)
        model.fills[node], model.before[node] = (cell, value), set(on)

    @rule(graph=graphs.filter(lambda graph: len(graph[1].fills) > 1), data=st.data())
    def connect(self, graph: Any, data: Any) -> None:
        handle, model = graph
        one, other = data.draw(st.tuples(*[st.sampled_from(list(model.fills))] * 2))
        code = cuda.cuGraphAddDependencies(handle, byref(c_void_p(one)), byref(c_void_p(other)), c_size_t(1))
        assert code == (1 if one == other or one in model.before[other] else 0)
        if not code:
            model.before[other].add(one)

    @rule(graph=graphs.filter(lambda graph: any(graph[1].before.values())), data=st.data())
    def disconnect(self, graph: Any, data: Any) -> None:
        handle, model = graph
        pairs = [(one, other) for other in model.fills for one in model.fills if one in model.before[other]]
        one, other = data.draw(st.sampled_from(pairs))
        arguments = handle, byref(c_void_p(one)), byref(c_void_p(other)), c_size_t(1)
        ok(cuda.cuGraphRemoveDependencies(*arguments))
        assert cuda.cuGraphRemoveDependencies(*arguments) == 1
        model.before[other].remove(one)

    @rule(graph=graphs.filter(lambda graph: graph[1].fills), data=st.data())
    def remove(self, graph: Any, data: Any) -> None:
        node = data.draw(st.sampled_from(list(graph[1].fills)))
        ok(cuda.cuGraphDestroyNode(c_void_p(node)))
        assert cuda.cuGraphDestroyNode(c_void_p(node)) == 1
        del graph[1].fills[node], graph[1].before[node]
        for before in graph[1].before.values():
            before.discard(node)

    @rule(target=graphs, graph=graphs)
    def clone(self, graph: Any) -> Any:
        handle, model = graph
        copy, other = new(cuda.cuGraphClone, handle), Model()
        names = {node: get(cuda.cuGraphNodeFindInClone, c_void_p(node), copy) for node in model.fills}
        other.fills = {names[node]: what for node, what in model.fills.items()}
        other.before = {names[node]: {names[one] for one in before} for node, before in model.before.items()}
        return copy, other

    @rule(target=executables, graph=graphs)
    def instantiate(self, graph: Any) -> Any:
        handle, model = graph
        executable, kept = c_void_p(), Model()
        code = cuda.cuGraphInstantiateWithFlags(byref(executable), handle, 0)
        assert code == (1 if model.has_circle() else 0)
        kept.fills, kept.before = dict(model.fills), {node: set(before) for node, before in model.before.items()}
        return (None if code else executable), kept

    @rule(executable=executables.filter(lambda executable: executable[0]))
    def launch(self, executable: Any) -> None:
        handle, model = executable
        ok(cuda.cuMemsetD8_v2(MEMORY, 0, CELLS))
        ok(cuda.cuGraphLaunch(handle, None))
        back = create_string_buffer(CELLS)
        ok(cuda.cuMemcpyDtoH_v2(addressof(back), MEMORY, CELLS))
        for cell, value in enumerate(back.raw):
            assert value in (model.last_writers(cell) or {0})

    @rule(graph=consumes(graphs))
    def destroy(self, graph: Any) -> None:
        ok(cuda.cuGraphDestroy(graph[0]))
        assert cuda.cuGraphDestroy(graph[0]) == 1

    @rule(executable=consumes(executables).filter(lambda executable: executable[0]))
    def destroy_executable(self, executable: Any) -> None:
        ok(cuda.cuGraphExecDestroy(executable[0]))
        assert cuda.cuGraphLaunch(executable[0], None) == 1

    @rule(graph=graphs)
    def edges(self, graph: Any) -> None:
        handle, model = graph
        count = new(cuda.cuGraphGetEdges, handle, None, None, c_size_t)
        one, other = (c_void_p * count.value)(), (c_void_p * count.value)()
        if count.value:
            ok(cuda.cuGraphGetEdges(handle, one, other, byref(count)))
        expected = {(before, node) for node, all_before in model.before.items() for before in all_before}
        assert set(zip(one, other, strict=True)) == expected

    @invariant()
    def clean(self) -> None:
        mode = c_int(0)
        ok(cuda.cuThreadExchangeStreamCaptureMode(byref(mode)))
        assert mode.value == 0


Graphs.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
if __name__ == "__main__":
    Graphs.TestCase("runTest").debug()
    print("done")

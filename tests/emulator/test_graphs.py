"""Graphs on the emulated driver: what they are made of, how they are copied, updated and launched."""

import re

from tests.emulator.conftest import ROOT, programs

#: A graph with a node that fills 16 bytes, and what makes more.
GRAPH = """
context = start()
memory = allocate(64)
def fill(value=7, to=None, element=1, width=16, height=1, pitch=0):
    return create_string_buffer(struct.pack("QQIIQQ", to or memory, pitch, value, element, width, height))
def created():
    return new(cuda.cuGraphCreate, 0)
def filled(graph, *on, **how):
    made = c_void_p()
    ok(cuda.cuGraphAddMemsetNode(byref(made), graph, (c_void_p * (len(on) or 1))(*on) if on else None,
                                 c_size_t(len(on)), fill(**how), context))
    return made
def instantiated(graph, flags=0):
    return new(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(flags))
def content(size=16):
    back = create_string_buffer(size)
    ok(cuda.cuMemcpyDtoH_v2(addressof(back), memory, size))
    return back.raw
graph, node, count = created(), c_void_p(), c_size_t()
def child_of(graph, moves):
    return create_string_buffer(struct.pack("i12xQi", 4, graph.value, moves), 256)
"""


PROGRAMS = {
    "arguments": """
# Nodes may do nothing; memory of a pool is of no context (recorded: programs of "order"); NULL is not the current one.
for kind, rest in ((8, b""), (9, b""), (12, struct.pack("Q", context.value))):
    parameters = create_string_buffer(struct.pack("i12x", kind) + rest, 256)
    ok(cuda.cuGraphAddNode_v2(byref(node), created(), None, None, c_size_t(0), parameters))
assert cuda.cuGraphAddBatchMemOpNode(byref(node), graph, None, c_size_t(0), bytes(40)) == 1
for flags in range(3):  # of a flush of remote writes
    assert cuda.cuStreamBatchMemOp(None, 1, struct.pack("II", 3, flags) + bytes(40), 0) == 801
pooled = new(cuda.cuMemAllocAsync, c_uint64, c_size_t(64), None).value
answers = [
    cuda.cuGraphAddMemsetNode(byref(node), created(), None, c_size_t(0), fill(to=to), one)
    for to, one in ((pooled, None), (pooled, context), (memory, None))]
assert answers == [1, 0, 0]
how = (c_uint64 * 4)(1 << 40)
assert cuda.cuGraphInstantiateWithParams(byref(c_void_p()), graph, how) == how[3] == 1  # of no flags that there are
kept = create_string_buffer(40)
ok(cuda.cuGraphMemsetNodeGetParams(filled(graph), kept))
assert kept.raw == fill().raw[:40]
""",
    "update": """
# An executable graph takes other parameters, also those of a clone.
one = filled(graph)
two = filled(graph, one, value=9, width=4)
executable = instantiated(graph)
ok(cuda.cuGraphExecMemsetNodeSetParams(executable, one, fill(value=5), context))
assert cuda.cuGraphExecMemsetNodeSetParams(executable, one, fill(height=2, pitch=16), context) == 1
ok(cuda.cuGraphLaunch(executable, None))
assert content() == bytes([9] * 4 + [5] * 12)
ok(cuda.cuGraphNodeSetEnabled(executable, two, 0))
ok(cuda.cuGraphLaunch(executable, None))
assert content() == bytes([5] * 16)
clone, info = c_void_p(), create_string_buffer(24)
ok(cuda.cuGraphClone(byref(clone), graph))
ok(cuda.cuGraphExecUpdate_v2(executable, clone, info))
ok(cuda.cuGraphExecUpdate_v2(executable, clone, None))
ok(cuda.cuGraphLaunch(executable, None))
assert content() == bytes([7] * 16)
""",
    "what_graphs_allocate": """
# Memory of the device alone, of which a block of 32 MiB is in use for several allocations; an edge more than before is
# found at the node that it leads to (as on an H200).
def allocated(kind, location):
    given = struct.pack("4i72x4Q", kind, 0, location, 0, 0, 0, 4096, 0)
    return cuda.cuGraphAddMemAllocNode(byref(node), graph, None, c_size_t(0), create_string_buffer(given))
assert [allocated(1, location) for location in (0, 2, 3)] == [1, 801, 801]
assert [allocated(2, location) for location in (0, 1, 2, 3)] == [801, 0, 801, 801] and allocated(1, 1) == 0
address = new(cuda.cuGraphMemAllocNodeGetParams, node, c_uint64 * 15)[14]
frees = created()
ok(cuda.cuGraphAddMemFreeNode(byref(node), frees, None, c_size_t(0), c_uint64(address)))
frees = instantiated(frees)
assert cuda.cuGraphLaunch(frees, None) == 1  # nothing is there to be freed
ok(cuda.cuGraphLaunch(instantiated(graph), None))
assert get(cuda.cuDeviceGetGraphMemAttribute, 0, 0, c_uint64) == 32 << 20
assert [cuda.cuGraphLaunch(frees, None) for _ in range(2)] == [0, 1]
ways, found = [created(), created()], (c_uint64 * 3)()
for at, way in enumerate(ways):
    first, second = filled(way), filled(way)
    filled(way, *[second, first][: at + 1])
assert cuda.cuGraphExecUpdate_v2(instantiated(ways[0]), ways[1], found) == 910 and found[0] == 2 and found[1]
""",
    "kernel_nodes_are_checked_and_not_executed": """
# A kernel node keeps copies of its parameters; a graph with one answers 801, and nothing of it is done.
module = loaded(small_ptx())
small = kernel_of(module, "small")
first, second = c_uint64(memory), c_uint(5)
parameters = (c_void_p * 2)(addressof(first), addressof(second))
def kernel(block=(1, 1, 1), given=addressof(parameters), function=small.value, of=0, extra=0):
    return create_string_buffer(struct.pack("Q7I4xQQQQ", function, 1, 1, 1, *block, 0, given, extra, 0, of))
def last_kept():
    kept = create_string_buffer(72)
    ok(cuda.cuGraphKernelNodeGetParams_v2(node, kept))
    values = cast(struct.unpack_from("Q", kept, 40)[0], POINTER(c_void_p))
    return cast(values[1], POINTER(c_uint))[0]
for bad in (dict(block=(0, 1, 1)), dict(block=(1025, 1, 1)), dict(given=0)):
    assert cuda.cuGraphAddKernelNode_v2(byref(node), graph, None, c_size_t(0), kernel(**bad)) == 1, bad
assert cuda.cuGraphAddKernelNode_v2(byref(node), graph, None, c_size_t(0), kernel(function=0)) == 400
packed, length = create_string_buffer(struct.pack("QI", memory, 8)), c_size_t(12)
extra = (c_void_p * 5)(1, addressof(packed), 2, addressof(length), None)  # a buffer that ends with the last parameter
ok(cuda.cuGraphAddKernelNode_v2(byref(node), created(), None, c_size_t(0), kernel(given=0, extra=addressof(extra))))
assert last_kept() == 8
ok(cuda.cuGraphAddKernelNode_v2(byref(node), graph, None, c_size_t(0), kernel()))
second.value = 6
assert last_kept() == 5
filled(graph)
ok(cuda.cuMemsetD8_v2(memory, 0, c_size_t(16)))
executable = instantiated(graph)
assert "does not execute kernels" in refused("cuGraphLaunch", executable, None)
assert content() == bytes(16)
ok(cuda.cuGraphNodeSetEnabled(executable, node, 0))
ok(cuda.cuGraphLaunch(executable, None))
assert content() == bytes([7] * 16)
apart, after = created(), c_void_p()
for one in (node, after):
    ok(cuda.cuGraphAddKernelNode_v2(byref(one), apart, None, c_size_t(0), kernel(of=context.value)))
for port, code in ((0, 1), (3, 1), (1, 0)):  # of programmatic edges
    edge = bytes((port, 0, 1, 0, 0, 0, 0, 0))
    assert cuda.cuGraphAddDependencies_v2(apart, byref(node), byref(after), edge, c_size_t(1)) == code, port
ok(cuda.cuGraphKernelNodeSetAttribute(node, 8, (c_int * 16)(-3)))
clone, kept = new(cuda.cuGraphClone, apart), (c_int * 16)()
ok(cuda.cuGraphDestroy(apart))
node = c_void_p(get(cuda.cuGraphGetNodes, clone, c_void_p, byref(c_size_t(1))))
ok(cuda.cuGraphKernelNodeGetAttribute(node, 8, kept))
assert kept[0] == -3 and last_kept() == 6
""",
    "conditions_and_children": """
# The default value chooses the body; a loop without end is refused; a child is a copy.
def conditional(kind, size, value):
    handle = new(cuda.cuGraphConditionalHandleCreate, c_uint64, graph, context, value, 1)
    made = create_string_buffer(256)
    struct.pack_into("i", made, 0, 13)
    struct.pack_into("QiIQQ", made, 16, handle.value, kind, size, 0, context.value)
    return made
def add(parameters):
    return cuda.cuGraphAddNode_v2(byref(node), graph, None, None, c_size_t(0), parameters)
chosen = conditional(0, 2, 0)
ok(add(chosen))
bodies = cast(struct.unpack_from("Q", chosen, 32)[0], POINTER(c_void_p))
for number in range(2):
    filled(c_void_p(bodies[number]), value=20 + number)
ok(cuda.cuGraphLaunch(instantiated(graph), None))
assert content() == bytes([21] * 16)
assert cuda.cuGraphAddNode_v2(byref(node), created(), None, None, c_size_t(0), child_of(graph, 1)) == 801
ok(cuda.cuGraphDestroy(graph))
graph = created()
ok(add(conditional(1, 1, 1)))
assert "loop" in refused("cuGraphLaunch", instantiated(graph), None)
for make, code in ((lambda body: cuda.cuGraphAddEmptyNode(byref(node), body, None, c_size_t(0)), 0),
                   (lambda body: cuda.cuGraphAddEventRecordNode(byref(node), body, None, c_size_t(0), event()), 1)):
    graph = created()
    given, how = conditional(1, 1, 1), (c_uint64 * 4)()
    ok(add(given))
    ok(make(c_void_p.from_address(struct.unpack_from("Q", given, 32)[0])))
    assert cuda.cuGraphInstantiateWithParams(byref(c_void_p()), graph, how) == code and how[3] == 3 * code
parent, child = created(), created()
filled(child, value=3)
ok(cuda.cuGraphAddChildGraphNode(byref(node), parent, None, c_size_t(0), child))
assert cuda.cuGraphAddChildGraphNode(byref(node), parent, None, c_size_t(0), None) == 1
ok(cuda.cuGraphLaunch(instantiated(parent), None))
assert content() == bytes([3] * 16)
""",
}
test_programs = programs(PROGRAMS, GRAPH)


def test_a_dot_file(check, as_kept) -> None:
    """It has the kept text for nodes, edges and graphs within graphs, and what each flag adds; and handles."""
    out = check(
        GRAPH
        + """
nodes, child, plain = [filled(graph)], created(), (graph, None, c_size_t(0))
nodes.append(filled(graph, nodes[0].value))
filled(child)
copy = struct.pack("32xI4x6Q", 2, 0, allocate(64), 0, 0, 16, 1) * 2 + struct.pack("3Q", 16, 1, 1)
nodes.append(new(cuda.cuGraphAddMemcpyNode, *plain, copy, context))
nodes.append(new(cuda.cuGraphAddChildGraphNode, *plain, child))
chosen = create_string_buffer(256)
struct.pack_into("i", chosen, 0, 13)
handle = new(cuda.cuGraphConditionalHandleCreate, c_uint64, graph, context, 0, 1)
struct.pack_into("QiIQQ", chosen, 16, handle.value, 0, 2, 0, context.value)
nodes.append(new(cuda.cuGraphAddNode_v2, graph, None, None, c_size_t(0), chosen))
def printed(flags):
    with tempfile.NamedTemporaryFile() as file:
        ok(cuda.cuGraphDebugDotPrint(graph, file.name.encode(), flags))
        return file.read().decode()
for flags in (0, 1, 1 << 10):
    print(printed(flags), end="")
assert cuda.cuGraphDebugDotPrint(graph, b"/nowhere/file", 0) == 304
assert {*map(hex, (node.value for node in nodes))} < {*re.findall("node handle: (0x[0-9a-f]+)", printed(1 << 10))}
"""
    )
    as_kept(ROOT / "tests" / "data" / "graph_dot.txt", re.sub("0x[0-9a-f]+", "0x", out))

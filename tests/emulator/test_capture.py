"""Capture on the emulated driver: operations become nodes, and what would break a capture is refused."""

from tests.emulator.conftest import ROOT, programs

CAPTURE = """
context = start()
memory = allocate(64)
def begin(one, mode=0):
    ok(cuda.cuStreamBeginCapture_v2(one, mode))
def end(one):
    made = c_void_p()
    return cuda.cuStreamEndCapture(one, byref(made)), made
def status(one):
    return get(cuda.cuStreamIsCapturing, one, c_int)
def kinds(graph):
    count, nodes = c_size_t(32), (c_void_p * 32)()
    ok(cuda.cuGraphGetNodes(graph, nodes, byref(count)))
    return [get(cuda.cuGraphNodeGetType, c_void_p(one), c_int) for one in nodes[:count.value]]
def fill(one, value=1):
    return cuda.cuMemsetD8Async(c_uint64(memory), value, c_size_t(16), one)
HOST = CFUNCTYPE(None, c_void_p)
calls = []
call = HOST(calls.append)
first, second = stream(1), stream(1)
"""


PROGRAMS = {
    "a_graph_that_a_capture_works_in_is_instantiated": """
# With the nodes that it has by then, where the mode lets calls through (recorded: programs of "order").
state, graph, executable = c_int(), c_void_p(), c_void_p()
begin(first, 2)
ok(cuda.cuLaunchHostFunc(first, call, c_void_p(7)))
ok(cuda.cuStreamGetCaptureInfo_v2(first, byref(state), None, byref(graph), None, None))
ok(cuda.cuGraphInstantiateWithFlags(byref(executable), graph, c_uint64(0)))
ok(cuda.cuLaunchHostFunc(first, call, c_void_p(8)))
ok(cuda.cuGraphLaunch(executable, second))
ok(cuda.cuStreamSynchronize(second))
assert calls == [7]
code, ended = end(first)
assert (code, ended.value, kinds(ended)) == (0, graph.value, [3, 3])
begin(first, 0)
ok(cuda.cuStreamGetCaptureInfo_v2(first, byref(state), None, byref(graph), None, None))
assert cuda.cuGraphInstantiateWithFlags(byref(executable), graph, c_uint64(0)) == 900
""",
    "a_capture_dies_with_its_context": """
# It prohibits nothing any more, its streams answer 709, and streams of others leave their work there.
for handle in (None, c_void_p(2)):
    other = new(cuda.cuCtxCreate_v2, 0, 0)
    one = handle or stream(1)
    begin(one)
    ok(fill(one))
    graph = new(cuda.cuStreamGetCaptureInfo_v2, one, byref(c_int()), None, c_void_p, None, None)
    ok(cuda.cuUserObjectCreate(byref(made := c_void_p()), c_void_p(5), call, 1, 1))
    ok(cuda.cuGraphRetainUserObject(graph, made, 1, 1))
    assert cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(8)) == 900 and status(one) == 2
    ok(cuda.cuCtxDestroy_v2(other))
    ok(cuda.cuCtxSetCurrent(context))
    allocate(8)
    assert status(first) == 0 and calls.pop() == 5
    assert end(one)[0] == (401 if handle else 201)
    assert cuda.cuGraphDestroy(graph) == 1
ok(cuda.cuCtxCreate_v2(byref(other), 0, 0))
third = stream(1)
begin(first)
there = event()
ok(cuda.cuCtxSetCurrent(context))
there = event()
ok(cuda.cuEventRecord(there, first))
ok(cuda.cuStreamWaitEvent(third, there, 0))
ok(fill(third))
ok(cuda.cuCtxDestroy_v2(other))
assert status(first) == 1 and end(first)[0] == 904
begin(first)
ok(cuda.cuDevicePrimaryCtxReset_v2(0))
assert end(first)[0] == 709 and cuda.cuStreamIsCapturing(first, byref(c_int())) == 709
assert cuda.cuStreamGetCtx(first, byref(other)) == 709 and cuda.cuStreamQuery(first) == 709
assert cuda.cuStreamDestroy_v2(first) == 709
assert cuda.cuGraphCreate(byref(graph), 0) == 0
assert cuda.cuGraphAddMemsetNode(byref(c_void_p()), graph, None, c_size_t(0), create_string_buffer(40), None) == 709
ok(cuda.cuDevicePrimaryCtxRetain(byref(context), 0))
allocate(8)
assert cuda.cuStreamDestroy_v2(first) == 400
""",
    "events_of_captures": """
# An event for other processes is never captured; after its recording the capture goes on, after a wait it does not.
shared = event(6)
calls = (lambda: cuda.cuEventRecord(shared, first), lambda: cuda.cuStreamWaitEvent(first, shared, 0))
for call, code in zip(calls, (0, 901)):
    begin(first, 2)
    assert call() == 900 and end(first)[0] == code
# what waits for the whole context invalidates all captures, work of the legacy stream those that it would wait for
for call, codes in (
    (lambda: cuda.cuCtxRecordEvent(context, event()), (900, 901, 901)),
    (lambda: cuda.cuCtxWaitEvent(context, event()), (900, 901, 901)),
    (lambda: cuda.cuMemsetD8Async(memory, 0, c_size_t(1), None), (906, 0, 901)),
    (lambda: cuda.cuMemsetD8Async(0, 0, c_size_t(1), first), (0, 0, 0)),  # no caller asks what is captured
):
    blocking = [stream(0), stream(0)]
    for one in (first, *blocking):
        begin(one, 2)
    assert (call(), *(end(one)[0] for one in (first, *blocking))) == (*codes, codes[-1])
# the time from one of a capture that is over, and to it, is not known
begin(first, 2)
captured, plain = event(), event()
ok(cuda.cuEventRecord(captured, first)), ok(end(first)[0]), ok(cuda.cuEventRecord(plain, None))
for one, other, code in ((captured, plain, 1), (plain, captured, 1), (plain, plain, 0)):
    assert cuda.cuEventElapsedTime_v2(byref(c_float()), one, other) == code
# one of the same capture may be waited for as one of outside (as on an H200), and not once the capture is over
own = event()
for code in (0, 1):
    begin(first, 2)
    code or ok(cuda.cuEventRecord(own, first))
    assert (cuda.cuStreamWaitEvent(first, own, 1), end(first)[0]) == (code, code and 901)
""",
    "many_dependencies": """
# A node takes many dependencies in their order, each once; a capture goes on behind them.
begin(first)
graph, status = c_void_p(), c_int()
ok(cuda.cuStreamGetCaptureInfo_v2(first, byref(status), None, byref(graph), None, None))
many = (c_void_p * 3000)()
for at in range(3000):
    ok(cuda.cuGraphAddEmptyNode(byref(many, 8 * at), graph, None, c_size_t(0)))
assert cuda.cuGraphDestroy(graph) == cuda.cuGraphDestroyNode(c_void_p(many[0])) == 401
for _ in range(2):
    ok(cuda.cuStreamUpdateCaptureDependencies(first, many, c_size_t(3000), 0))
    nodes, count = c_void_p(), c_size_t()
    ok(cuda.cuStreamGetCaptureInfo_v2(first, byref(status), None, byref(graph), byref(nodes), byref(count)))
    assert (c_uint64 * count.value).from_address(nodes.value)[:] == many[:]
ok(fill(first))
ok(fill(first))
assert end(first)[0] == 0
ok(cuda.cuGraphCreate(byref(graph), 0))
for at in range(3000):
    ok(cuda.cuGraphAddEmptyNode(byref(many, 8 * at), graph, None, c_size_t(0)))
node = new(cuda.cuGraphAddEmptyNode, graph, many, c_size_t(3000))
many[2999] = many[7]
assert cuda.cuGraphAddEmptyNode(byref(node), graph, many, c_size_t(3000)) == 1
""",
}
test_programs = programs(PROGRAMS, CAPTURE)


def test_each_pair(check, as_kept) -> None:
    """Captures of each two calls, in one stream or two, answer and record what is kept, however the two are joined."""
    out = check(
        CAPTURE
        + """
module, event, page = loaded(small_ptx()), event(), pinned()
kernel = kernel_of(module, "other")
child = new(cuda.cuGraphCreate, 0)
new(cuda.cuGraphAddEmptyNode, child, None, c_size_t(0))
queued, size = c_uint64(), c_size_t(16)
calls = {
    "fill": lambda at: fill(at),
    "copy": lambda at: cuda.cuMemcpyDtoHAsync_v2(c_void_p(page), c_uint64(memory), size, at),
    "pageable copy": lambda at: cuda.cuMemcpyHtoDAsync_v2(c_uint64(memory), create_string_buffer(16), size, at),
    "launch": lambda at: cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, at, None, None),
    "host": lambda at: cuda.cuLaunchHostFunc(at, call, None),
    "allocate": lambda at: cuda.cuMemAllocAsync(byref(queued), size, at),
    "free": lambda at: cuda.cuMemFreeAsync(queued, at),
    "record": lambda at: cuda.cuEventRecord(event, at),
    "wait": lambda at: cuda.cuStreamWaitEvent(at, event, 0),
    "query": lambda at: cuda.cuStreamQuery(at),
    "synchronize": lambda at: cuda.cuStreamSynchronize(at),
    "begin": lambda at: cuda.cuStreamBeginCapture_v2(at, 0),
    "free memory": lambda at: cuda.cuMemFree_v2(c_uint64(0)),
    "of context": lambda at: cuda.cuCtxSynchronize(),
}
def between(number):
    fork = [cuda.cuEventRecord(event, first), cuda.cuStreamWaitEvent(second, event, 0)] if number else []
    return fork, second if number else first
def edges(graph):
    count, pairs = c_size_t(64), [(c_void_p * 64)() for _ in range(2)]
    code = cuda.cuGraphGetEdges(graph, *pairs, byref(count))
    places = {node: at for at, node in enumerate(nodes_of(graph))}
    return code, sorted((places[one], places[other]) for one, other in zip(*(pair[: count.value] for pair in pairs)))
def nodes_of(graph):
    count, nodes = c_size_t(64), (c_void_p * 64)()
    ok(cuda.cuGraphGetNodes(graph, nodes, byref(count)))
    return nodes[: count.value]
for mode, (one, other), joined in itertools.product((0, 2), itertools.product(calls, repeat=2), range(3)):
    queued.value = 0
    begin(first, mode)
    codes, (forked, at) = [calls[one](first)], between(joined)
    codes += [*forked, calls[other](at)]
    if joined == 2:
        codes += [cuda.cuEventRecord(event, second), cuda.cuStreamWaitEvent(first, event, 0)]
    states = [(cuda.cuStreamIsCapturing(stream, byref(state := c_int(9))), state.value) for stream in (first, second)]
    code, graph = end(first)
    codes.append((code, cuda.cuStreamEndCapture(second, byref(c_void_p()))))
    print(mode, one, other, joined, *codes, *states, *((kinds(graph), *edges(graph)) if graph else ()), sep="; ")
    if graph:
        made = c_void_p()
        print(cuda.cuGraphInstantiateWithFlags(byref(made), graph, c_uint64(0)), cuda.cuGraphDestroy(graph))
        if made:
            print(cuda.cuGraphLaunch(made, first), cuda.cuStreamSynchronize(first), cuda.cuGraphExecDestroy(made))
    cuda.cuStreamSynchronize(first), cuda.cuStreamSynchronize(second)
"""
    )
    as_kept(ROOT / "tests" / "data" / "capture_pairs.txt", out)

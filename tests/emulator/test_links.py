"""What the emulated driver's linker answers: after failures, to a link that has failed, and where it writes."""

from tests.emulator.conftest import ROOT, programs

HEAD = """start()
def ptx(text, version="8.0"):
    return f".version {version}\\n.target sm_70\\n.address_size 64\\n{text}\\n".encode()
def create(count=0, keys=None, values=None):
    return new(cuda.cuLinkCreate_v2, count, keys, values, c_void_p)
def add(state, kind, data):
    return cuda.cuLinkAddData_v2(state, kind, data, c_size_t(len(data)), b"input", 0, None, None)
def complete(state):
    return cuda.cuLinkComplete(state, byref(c_void_p()), byref(c_size_t()))
defined = ptx(".visible .func thing() { ret; }")
lone = ptx(".extern .func thing();\\n.visible .entry calls() { call thing; ret; }")
wrong, newer = defined.replace(b"ret", b"rett"), ptx(".visible .func thing() { ret; }", "99.0")
nonsense = b"this is no image of any kind"
"""


PROGRAMS = {
    "after_ptx_that_failed": """
# Wrong PTX, linked or loaded, makes later errors of links on its thread 999; PTX that is too new hides some.
twice, undefined = [(PTX, defined)] * 2, [(PTX, lone)]
def later():
    return link(twice)[0], link(undefined)[0]
assert later() == (300, 300)
for fails in (lambda image: load(image)[0], lambda image: link([(PTX, image)])[0]):
    assert fails(newer) == 222 and later() == (300, 0)
    assert fails(wrong) == 218 and later() == (999, 999)
state = create()
assert [add(state, PTX, defined) for _ in range(3)] == [0, 999, 999] and complete(state) == 999
context = new(cuda.cuCtxGetCurrent)
assert elsewhere(lambda: (cuda.cuCtxSetCurrent(context), later())[1]) == (300, 300)
""",
    "inputs_of_a_link_that_has_failed": """
# A link that failed answers its failure, but PTX is compiled and a container is looked into before.
for first, code in (((PTX, defined), 300), ((CUBIN, nonsense), 200)):
    state = create()
    assert add(state, PTX, defined) == 0
    assert add(state, *first) == code
    assert [add(state, kind, nonsense) for kind in (PTX, FATBINARY)] == [200, 200]
    assert [add(state, PTX, image) for image in (newer, wrong, lone)] == [222, 218, code]
    assert [add(state, kind, nonsense) for kind in (CUBIN, OBJECT, LIBRARY, NVVM)] == [code] * 4
    assert complete(state) == code
    ok(cuda.cuLinkDestroy(state))
""",
    "what_is_no_archive": """
# Text that is given as a library is 200 up to 15 bytes, and 999 from 16 on.
state = create()
assert [add(state, LIBRARY, b"x" * size) for size in (1, 8, 15, 16, 67, 68)] == [200] * 3 + [999] * 3
member = b"!<arch>\\n" + b"name".ljust(48) + b"%-10d`\\n"
for damaged in (b"!<arch>\\n" + b"x" * 60, member[:38], member % 99999):
    assert add(create(), LIBRARY, damaged) == 200
""",
    "a_target_that_was_renamed": """
# CUDA 13.0 calls 110 what was 101.
state, image = create(1, (c_int * 1)(9), (c_void_p * 1)(101)), c_void_p()
assert add(state, PTX, defined) == 0
ok(cuda.cuLinkComplete(state, byref(image), byref(c_size_t())))
assert ctypes.string_at(image, 50)[49] == 110
""",
    "what_is_kept": """
# Why it failed, for its next completion; and an image of finished code counts once.
state = create()
assert (add(state, PTX, lone), complete(state), complete(state)) == (0, 300, 300)
one, other = (artifact(f"{release}/linked.cubin") for release in ("13.0", "13.2"))
before = cuda.cudalinkImageCount()
for image, count in ((small_ptx(), 0), (one, 1), (one, 1), (other, 2), (one, 2), (other, 2)):
    loaded(image)
    assert cuda.cudalinkImageCount() - before == count
""",
    "sizes_of_logs": """
# Every input writes the sizes of both logs, whether it said something or not.
logs = [create_string_buffer(4096) for _ in range(2)]
keys = (c_int * 4)(3, 4, 5, 6)
values = (c_void_p * 4)(addressof(logs[0]), 4096, addressof(logs[1]), 4096)
state = create(4, keys, values)
for data, code, length in ((defined, 0, 0), (nonsense, 200, 63), (lone, 0, 63)):
    values[1] = values[3] = 7777
    assert add(state, PTX, data) == code
    assert (values[1] or 0, values[3] or 0) == (0, length)
values[1] = values[3] = 7777
assert cuda.cuLinkAddData_v2(state, PTX, None, c_size_t(0), None, 0, None, None) == 1
assert values[1] == values[3] == 7777
""",
}
test_programs = programs(PROGRAMS, HEAD, sizes_of_logs={"lifetime": "off"})


def test_answers(check, as_kept) -> None:
    """The answers to inputs that are cut short, changed, or given to other links, and the images, are the kept ones.

    A line has how often, of which link and of which kind; the codes of the inputs, of completion and of another one;
    what the image has; whether the input can be loaded; the options that were written to; then both logs.
    """
    out = check(
        HEAD
        + """
import collections
INPUTS = ((CUBIN, "13.0/user.cubin"), (PTX, "13.0/user.ptx"), (FATBINARY, "nvcc/user-plain.fatbin"),
          (OBJECT, "nvcc/user.o"), (LIBRARY, "nvcc/user.a"), (NVVM, "13.0/user.ltoir"))
WHOLE = (*INPUTS, (CUBIN, "13.0/user-sm_100.cubin"), (CUBIN, "13.0/linked.cubin"), (FATBINARY, "nvcc/user.fatbin"),
         (FATBINARY, "nvcc/user-lto.fatbin"), (OBJECT, "nvcc/user-lto.o"), (PTX, "13.2/main.ptx"))
LINKS = {"plain": {}, "sm_90": {9: 90}, "lines": {13: 1}, "debug": {11: 1, 7: 0},
         "fast": {7: 3, 14: 1}, "small": {0: 16, 2: 0}}
found = collections.Counter()
def note(name, kind, image, first=()):
    logs = [create_string_buffer(1024) for _ in range(2)]
    options = {3: addressof(logs[0]), 4: 1024, 5: addressof(logs[1]), 6: 1024, **LINKS.get(name, {})}
    values = (c_void_p * len(options))(*options.values())
    state = create(len(options), (c_int * len(options))(*options), values)
    codes, made, size = [add(state, *one) for one in (*first, (kind, image))], c_void_p(), c_size_t()
    codes += [cuda.cuLinkComplete(state, byref(made), byref(size)), complete(state)]
    made = ctypes.string_at(made, size.value) if made else b""
    parts = [part for part in ("debug_line", "debug_info", "nv_debug_line_sass", "text.") if part.encode() in made]
    codes += [f"{{{' '.join(parts)}}}", load(image + bytes(1 << 14))[0]]
    texts = (re.sub("ptxas warning[^\\n]*\\n?", "", log.value.decode(errors="replace")) for log in logs)
    texts = (re.sub("0x[0-9a-f]+", "#", ascii(text)) for text in texts)
    written = [key for key, value in zip(options, values) if value != (options[key] or None) and key not in (4, 6)]
    ok(cuda.cuLinkDestroy(state))
    found[name, kind, *codes, str(written), *texts] += 1
for kind, file in WHOLE:
    for name, other in itertools.product(LINKS, range(6)):
        note(name, other, artifact(file))
    note("twice", kind, artifact(file), [(kind, artifact(file))])
    note("with PTX", kind, artifact(file), [(PTX, artifact("13.0/user.ptx"))])
    note("failed", kind, artifact(file), [(CUBIN, nonsense)])
for kind, file in INPUTS:
    data = artifact(file)
    cuts = {*range(0, 80, 13), 15, 16, 17, 18, 63, 64, 65, 127, 128, len(data) // 2}
    cuts |= {len(data) - cut for cut in (1, 62, 63, 64, 65)}
    changed = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1:] for at in (4, 16, 18, 40, 60, 300)]
    for image in (data, *(data[:cut] for cut in sorted(cuts)), *changed):
        note("cut", kind, image)
        note("failed", kind, image, [(CUBIN, nonsense)])
for answer, count in sorted(found.items(), key=str):
    print(count, *answer)
for key in range(-1, 40):
    answers = []
    for value in (0, 1, 2, 90):
        one, given, state = (c_int * 1)(key), (c_void_p * 1)(value), c_void_p()
        answers.append(cuda.cuLinkCreate_v2(1, one, given, byref(state)))
        state = state if state else create()
        answers.append(cuda.cuLinkAddData_v2(state, PTX, defined, c_size_t(len(defined)), b"input", 1, one, given))
        ok(cuda.cuLinkDestroy(state))
    print("option", key, *answers)
"""
    )
    as_kept(ROOT / "tests" / "data" / "link_answers.txt", out)

"""What a damaged header claims is never reserved, and one link state survives several threads."""

from tests.emulator.conftest import programs

#: No more memory than there is, and 256 MiB.
LIMIT = """
def limit():
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (now + (256 << 20), resource.RLIM_INFINITY))
ok(cuda.cuInit(0))
context = new(cuda.cuDevicePrimaryCtxRetain, 0)
ok(cuda.cuCtxSetCurrent(context))
module = c_void_p()
"""


def test_a_file_with_a_hole(check, tmp_path) -> None:
    """A file of more than 1 GiB that is one hole is refused by every function that reads files, and is not read."""
    path = tmp_path / "hole.cubin"
    path.touch()
    with path.open("r+b") as file:
        file.write(b"\x7fELF")
        file.truncate((1 << 30) + 4096)
    check(
        LIMIT
        + f"""
path = {str(path)!r}.encode()
assert cuda.cuModuleLoad(byref(module), path) == 2
state = new(cuda.cuLinkCreate_v2, 0, None, None, c_void_p)
assert cuda.cuLinkAddFile_v2(state, CUBIN, path, 0, None, None) == 2
ok(cuda.cuLinkDestroy(state))
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 512 << 10
"""
    )


PROGRAMS = {
    "images_that_claim_a_gigabyte": """
# An ELF and a fatbin whose headers claim 1 GiB are invalid (200), and not out of memory (2).
elf = bytearray((ARTIFACTS / "13.0" / "user.cubin").read_bytes())
elf[40:48] = struct.pack("<Q", (1 << 30) - 65536)
fatbin = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, (1 << 30) - 64) + bytes(4096)
limit()
for image in (bytes(elf), fatbin):
    # at the end of a mapping, so that nothing is readable behind it
    room = (len(image) + 4095) // 4096 * 4096
    libc = CDLL(None)
    libc.mmap.restype = c_void_p
    pages = libc.mmap(None, c_size_t(room + (64 << 20)), 3, 0x22, -1, c_size_t(0))
    libc.munmap(c_void_p(pages + room), c_size_t(64 << 20))
    memmove(pages, image, len(image))
    assert (code := cuda.cuModuleLoadData(byref(module), c_void_p(pages))) == 200, code
    library = new(cuda.cuLibraryLoadData, c_void_p(pages), None, None, 0, None, None, 0)
    assert cuda.cuLibraryGetModule(byref(module), library) == 200  # loaded lazily
""",
    "adding_to_a_state_that_another_thread_destroys": """
# Each call finds the state or answers that it is gone; the heap stays whole.
image = (ARTIFACTS / "13.0" / "user.cubin").read_bytes()
answers = set()
for number in range(150):
    state = new(cuda.cuLinkCreate_v2, 0, None, None, c_void_p)
    start = threading.Barrier(3)
    def add():
        start.wait()
        for _ in range(3):
            answers.add(cuda.cuLinkAddData_v2(state, CUBIN, image, c_size_t(len(image)), b"user", 0, None, None))
    def destroy():
        start.wait()
        answers.add(cuda.cuLinkDestroy(state))
    threads = [threading.Thread(target=one) for one in (add, add, destroy)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
print(sorted(answers))
""",
}
STRICT = {"MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165"}
test_programs = programs(PROGRAMS, LIMIT, adding_to_a_state_that_another_thread_destroys={"env": STRICT})

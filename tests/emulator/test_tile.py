"""Images of CUDA Tile: what a real driver of CUDA 13.0 answered about them, and what one with their compiler does.

Measured on an H100 with driver 580.159.04, 2026-11-24, with images as those of ``tests/data/artifacts/tile``.
"""

import pytest

from tests.emulator.conftest import programs

#: Program that gives the answers to the images: as a module, and as a library at its first look-up.
ANSWERS = """
start()
for name in ("add-13.1.tileir", "add-13.5.tileir", "add.fatbin", "add-plain.fatbin", "add.cubin"):
    image = artifact("tile/" + name)
    library, found = c_void_p(), c_void_p()
    ok(cuda.cuLibraryLoadData(byref(library), image, None, None, 0, None, None, 0))
    print(load(image)[0], cuda.cuLibraryGetModule(byref(found), library))
"""


@pytest.mark.parametrize(
    ("driver", "codes"),
    [
        ("13.0", [200, 200, 209, 209, 0]),
        pytest.param("13.2", [221, 221, 221, 221, 0], id="a driver that wants libnvidia-tileiras"),
    ],
)
def test_loads(check, driver: str, codes: list[int]) -> None:
    """CUDA 13.0 knows no Tile IR; newer drivers compile it with a library that the emulated one lacks."""
    assert check(ANSWERS, driver).splitlines() == [f"{code} {code}" for code in codes]


PROGRAMS = {
    "the_log_and_the_event": """
# The log says what a real driver says, and the event names the bytecode, whose size no argument gives.
start()
log = create_string_buffer(200)
options, values = (c_int * 2)(5, 6), (c_void_p * 2)(addressof(log), 200)
module, image = c_void_p(), create_string_buffer(artifact("tile/add-13.3.tileir"))
assert cuda.cuModuleLoadDataEx(byref(module), image, 2, options, values) == 200
assert log.value == b"error   : Binary format for key='0', ident='' is not recognized"
assert last_event()["image"] == ["tileir - - 13.3"]
""",
    "launches": """
# A kernel of tileiras takes one thread or those of its code; another block is refused.
start()
kernel = kernel_of(loaded(artifact("tile/add.cubin")), "add")
values = [c_uint64(), c_int(16), c_int(1)] * 3
parameters = (c_void_p * 9)(*map(addressof, values))
for x, y, answer in ((1, 1, 801), (2, 1, 1), (32, 1, 1), (128, 1, 801), (1, 2, 1), (1024, 1, 1)):
    assert cuda.cuLaunchKernel(kernel, 4, 1, 1, x, y, 1, 0, None, parameters, None) == answer, (x, y)
""",
}
test_programs = programs(PROGRAMS)

"""Values of the environment that are long, or beyond a limit: the driver takes them whole, or says what it does."""

from pathlib import Path

import pytest

from pytest_cudalink import emulator
from pytest_cudalink.compat import names
from tests.emulator.conftest import HEAD, programs

COUNTS = """
count = c_int()
ok(cuda.cuInit(0)) if expected else None
assert cuda.cuDeviceGetCount(byref(count)) == (0 if expected else 3)
nvml = CDLL("libnvidia-ml.so.1")
ok(nvml.nvmlInit_v2())
assert get(nvml.nvmlDeviceGetCount_v2, c_uint) == expected
assert not expected or count.value == expected, count.value
"""


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """A folder whose path is longer than 1024 characters."""
    folder = tmp_path.joinpath(*["d" * 200] * 5)
    folder.mkdir(parents=True)
    assert len(str(folder)) > 1024
    return folder


@pytest.mark.parametrize(("wanted", "taken"), [(65, 64), (4_000_000, 64), (-1, 0), (64, 64)])
def test_devices_beyond_the_limit(on_driver, wanted: int, taken: int) -> None:
    """A number of devices that cannot be is reported with the one that is taken, by NVML too."""
    assert names.LIMIT_DEVICES == 64
    done = on_driver("13.0", "-c", f"{HEAD}expected = {taken}{COUNTS}", env={"CUDALINK_EMULATOR_DEVICES": str(wanted)})
    said = f"cudalink: CUDALINK_EMULATOR_DEVICES is {wanted}; expected 0 to 64; taking {taken}\n"
    assert (done.returncode, done.stderr) == (0, said * (wanted != taken))


def test_long_paths(on_driver, deep: Path) -> None:
    """The nvJitLink and the file of events are found under paths of more than 1024 characters."""
    library = emulator.emulation_for("13.0").nvjitlink
    (deep / "libnvJitLink.so").symlink_to(library)
    program = (
        "start(); code, image, log = link([(PTX, small_ptx())]); assert code == 0 and len(image) > 1000, (code, log)"
    )
    environment = {"CUDALINK_EMULATOR_NVJITLINK": str(deep / "libnvJitLink.so")}
    done = on_driver("13.0", "-c", HEAD + program, env=environment, events=deep / "events.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert '"call":"cuLinkComplete"' in (deep / "events.jsonl").read_text(encoding="utf-8")


def test_many_faults(on_driver) -> None:
    """As many faults as there can be are all injected, however long the text; one more is refused at once."""
    long = "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags:123456=999@123456"
    faults = ";".join([long] * (names.LIMIT_FAULTS - 1) + ["cuDriverGetVersion:1=700"])
    assert len(faults) > 4096
    done = on_driver("13.0", "-c", HEAD + "assert cuda.cuDriverGetVersion(byref(c_int())) == 700", faults=faults)
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(emulator.EmulatorError, match="65 faults are too many; expected at most 64"):
        emulator.emulation_for("13.0", faults=f"{faults};cuInit:1=2")


def test_too_many_faults_for_the_driver(on_driver) -> None:
    """A program that was given more faults than there can be hears which one is not injected."""
    faults = ";".join(["cuMemAlloc_v2:1000=2"] * names.LIMIT_FAULTS + ["cuDriverGetVersion:1=700"])
    program = HEAD + "assert cuda.cuDriverGetVersion(byref(c_int())) == 0"
    done = on_driver("13.0", "-c", program, env={"CUDALINK_EMULATOR_FAULTS": faults})
    assert done.returncode == 0, done.stderr
    assert done.stderr == "cudalink: CUDALINK_EMULATOR_FAULTS: no function cuDriverGetVersion, or too many faults\n"


def test_long_release(on_driver) -> None:
    """A driver release that does not fit into the answer is an error of the call, not half a release."""
    release = "580" + ".0" * 40
    program = """
nvml = CDLL("libnvidia-ml.so.1")
text = create_string_buffer(200)
ok(nvml.nvmlInit_v2())
ok(nvml.nvmlSystemGetDriverVersion(text, 200))
assert text.value == b"580" + b".0" * 40
assert nvml.nvmlSystemGetDriverVersion(text, 80) == 7
assert nvml.nvmlSystemGetNVMLVersion(text, 200) == 7
"""
    done = on_driver("13.0", "-c", HEAD + program, release=release)
    assert (done.returncode, done.stderr) == (0, "")


PROGRAMS = {
    "an_address_as_the_number_of_options": """
# No call counts up to it, whatever lies behind the options that are given.
start()
keys, values, made = (c_int * 4096)(), (c_void_p * 4096)(*[1] * 4096), c_void_p()
state, none = c_void_p(), c_uint(0)
ok(cuda.cuLinkCreate_v2(none, None, None, byref(state)))
ptx = small_ptx() + b"\\0"
for count in (c_uint(addressof(keys) & 0xffffffff), c_uint(0xffffffff), c_uint(1025)):
    assert cuda.cuLinkCreate_v2(count, keys, values, byref(made)) == 1
    assert cuda.cuLinkAddData_v2(state, PTX, ptx, c_size_t(len(ptx)), b"x", count, keys, values) == 1
    assert cuda.cuModuleLoadDataEx(byref(made), ptx, count, keys, values) == 1
    assert cuda.cuLibraryLoadData(byref(made), ptx, keys, values, count, None, None, none) == 1
    assert cuda.cuLibraryLoadData(byref(made), ptx, None, None, none, keys, values, count) == 1
names = (c_void_p * 1)()
for given in ({32: 0xffffffff}, {25: addressof(names), 26: 1}):  # threads of a block; a name that is NULL
    keys, values = (c_int * 2)(*given), (c_void_p * 2)(*given.values())
    assert cuda.cuLinkCreate_v2(c_uint(len(given)), keys, values, byref(made)) == 1
""",
    "errno_without_descriptors": """
# A call leaves errno as it was, though the driver met EMFILE in it.
start()
own, state = ctypes.CDLL("libcuda.so.1", use_errno=True), c_void_p()
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 4096))
ctypes.set_errno(77)
ok(own.cuLinkCreate_v2(0, None, None, byref(state)))  # says at the first input that nothing links
assert ctypes.get_errno() == 77
assert own.cuLinkAddData_v2(state, PTX, small_ptx(), c_size_t(9999), None, 0, None, None) == 999
assert ctypes.get_errno() == 77
""",
}
test_programs = programs(PROGRAMS)

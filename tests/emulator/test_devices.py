"""Which devices a driver shows: chosen by name or architecture, with a memory that fits the machine or the user."""

import json
import os
import re
from pathlib import Path
from textwrap import dedent

import pytest

from pytest_cudalink.compat.names import DEFAULT_ARCHITECTURE, EMULATED_ARCHITECTURES, EMULATED_DEVICES
from pytest_cudalink.emulator import Devices, EmulatorError, emulation_for, from_environment
from tests.emulator.conftest import HEAD, programs

#: The memory that processes here may use: a container may have less than its machine.
LIMIT = Path("/sys/fs/cgroup/memory.max")
GROUP = LIMIT.read_text(encoding="ascii").strip() if LIMIT.exists() else "max"
MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
#: Half of it, in pages of a device.
HALF = min(MACHINE, int(GROUP) if GROUP != "max" else MACHINE) // 2 >> 21 << 21
#: Asks the driver for what the tests compare: name, L2 cache, memory, and memory that is free.
ASK = """
start()
name, total = char_buffer(), get(cuda.cuDeviceTotalMem_v2, c_size_t, 0)
ok(cuda.cuDeviceGetName(name, 256, 0))
assert get(cuda.cuMemGetInfo_v2, c_size_t, c_size_t) == (total, total)
print(name.value.decode(), get(cuda.cuDeviceGetAttribute, c_int, 38, 0), total, sep=";")
"""


@pytest.fixture
def ask(check):
    """What a driver says of its device."""

    def run(**options: object) -> tuple[str, int, int]:
        name, cache, memory = check(ASK, **options).strip().split(";")
        return name, int(cache), int(memory)

    return run


def test_an_h100_and_an_h200(ask) -> None:
    """Two devices of one architecture differ in their names and caches; the architecture alone means the H200."""
    assert ask(device="h100")[:2] == ("NVIDIA H100 80GB HBM3", 52_428_800)
    assert ask(device="h200")[:2] == ask(device="sm_90")[:2] == ask()[:2] == ("NVIDIA H200", 62_914_560)


@pytest.mark.parametrize("arch", sorted(set(EMULATED_DEVICES.values())))
def test_an_architecture_means_its_first_device(ask, arch: str) -> None:
    """A device of each architecture is found by the architecture alone."""
    first = next(name for name, other in EMULATED_DEVICES.items() if other == arch)
    assert ask(device=arch) == ask(device=first)


def test_the_page_lists_every_device() -> None:
    """The page of the emulated driver names the devices and architectures that there are."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "emulator.md").read_text(encoding="utf-8")
    listed = re.search(r"newer than the driver: (.*?), or by name (.*?)\.", " ".join(page.split()))
    assert listed is not None
    for words, known in zip(listed.groups(), (EMULATED_ARCHITECTURES, EMULATED_DEVICES), strict=True):
        assert sorted(re.split(", | or ", words.replace(" (the default)", ""))) == sorted(known)


def test_memory(ask) -> None:
    """A device has the memory that is asked for; by default its own, at most half of what the machine has."""
    assert ask(device="memory=8GiB")[2] == 8 << 30
    assert ask(device="memory=1.5 TiB")[2] == 3 << 39
    assert ask()[2] == min(150_109_880_320, HALF)


@pytest.mark.parametrize("value", ["8", "8GB", "-1", "many", "15MiB", "1e9", "8 gib"])
def test_memory_that_cannot_be(value: str) -> None:
    """A size that is not one, or too small for a context, is refused with what is expected."""
    with pytest.raises(EmulatorError, match="expected a size of at least 16MiB, such as 512MiB or 8GiB") as raised:
        emulation_for("13.0", device=f"memory={value}")
    assert raised.value.parameter == "device"


def test_devices_that_cannot_be() -> None:
    """An unknown device or word, a wrong number, and a device that is newer than the driver."""
    for text, complaint in {
        "h300": "there is no emulated device 'h300'; expected v100, t4, ",
        "none:2": "there is no emulated device 'none'; expected",
        "h100:0": "the number of devices is '0'; expected 1 to 64, or none for no device",
        "h100:65": "the number of devices is '65'; expected",
        "h100:two": "the number of devices is 'two'; expected",
        "h100:+2": "the number of devices is '+2'; expected",
        "h100,l4": "'l4' comes after another value of the same; expected DEVICE[:NUMBER], memory=SIZE",
        "h100,memry=8GiB": "'memry=8GiB' is unknown; expected DEVICE[:NUMBER], memory=SIZE",
    }.items():
        with pytest.raises(EmulatorError, match=re.escape(complaint)):
            emulation_for("13.0", device=text)
    for version, device in (("12.7", "sm_120"), ("12.4", "b200")):
        with pytest.raises(EmulatorError, match="sm_1[02]0, which needs CUDA 12.8"):
            emulation_for(version, device=device)
        assert emulation_for("12.8", device=device).arch.startswith("sm_1")


@pytest.mark.parametrize(
    ("text", "devices", "shown"),
    [
        ("", Devices(DEFAULT_ARCHITECTURE), DEFAULT_ARCHITECTURE),
        ("sm_80:1", Devices("sm_80"), "sm_80"),
        ("l4:2,memory=4GiB", Devices("sm_89", "l4", 2, 4 << 30), "l4:2,memory=4294967296B"),
        ("memory=16MiB", Devices(DEFAULT_ARCHITECTURE, memory=16 << 20), f"{DEFAULT_ARCHITECTURE},memory=16777216B"),
        ("none", Devices(number=0), "none"),
    ],
)
def test_children_get_the_same_devices(text: str, devices: Devices, shown: str) -> None:
    """The environment says all of a text, and is read back."""
    planned, unwatched = (emulation_for("13.0", device=text, lifetime=mode) for mode in ("fail", "off"))
    assert planned.devices == devices
    assert str(devices) == shown
    assert from_environment(planned.environment()) == planned
    assert ("MALLOC_PERTURB_" in planned.environment(), "MALLOC_PERTURB_" in unwatched.environment()) == (True, False)


def test_wrong_values_in_the_environment(on_driver) -> None:
    """The native library says on stderr what it does not take."""
    wrong = {"CUDALINK_EMULATOR_DEVICE": "h300", "CUDALINK_EMULATOR_DEVICE_MEMORY": "8GiB"}
    done = on_driver("13.0", "-c", HEAD + ASK, env=wrong)
    assert done.stdout.startswith("NVIDIA H200;")
    assert "CUDALINK_EMULATOR_DEVICE is 'h300', which is not a known device; taking sm_90" in done.stderr
    assert done.stdout == on_driver("13.0", "-c", HEAD + ASK).stdout  # memory, too, is that of the default
    assert "CUDALINK_EMULATOR_DEVICE_MEMORY is '8GiB'; expected a number of bytes from 16777216 on" in done.stderr


@pytest.mark.parametrize(
    ("visible", "places", "noted"),
    [
        ("2,0", [2, 0], ""),
        ("1,9,0", [1], ""),
        ("GPU-UUID2,GPU-UUID1", [2, 1], ""),
        ("GPU-65,GPU-6375", [2, 0], ""),
        ("GPU-6", [], "begins with no device"),  # how all of them begin
        ("10", [10], ""),
        ("9", [], "is '9', which begins with no device that is there; expected numbers from 0 to 2,"),
        ("1,2,1", [], "names a device twice"),
    ],
)
def test_a_program_sees_the_devices_that_it_names(on_driver, visible: str, places: list[int], noted: str) -> None:
    """Devices are numbered as CUDA_VISIBLE_DEVICES has them; UUID, bus and handles of other processes stay theirs."""
    program = """
    uuid, text, value, code = create_string_buffer(16), char_buffer(), c_int(), cuda.cuInit(0)
    found = []
    for device in range(3):
        if not cuda.cuDeviceGetUuid_v2(uuid, device):
            ok(cuda.cuDeviceGetPCIBusId(text, 256, device))
            assert get(cuda.cuDeviceGetByPCIBusId, c_int, text) == device
            assert get(cuda.cuDeviceGetAttribute, c_int, 33, device) == int(text.value[5:7], 16) == uuid.raw[15] + 1
            found.append(uuid.raw[15])
    assert code or cuda.cuDeviceGetByPCIBusId(byref(value), b"0000:09:00.0") == 101
    assert code or cuda.cuDeviceGetByPCIBusId(byref(value), b"0000:09:00.0 and more") == 1
    nvml = CDLL("libnvidia-ml.so.1")
    assert not nvml.nvmlInit_v2() and not nvml.nvmlDeviceGetCount_v2(byref(value)) and value.value == {devices}
    print(json.dumps([code, found, events()[0].get("note", "")]))
    """
    devices = 12 if visible == "10" else 3
    for place in range(3):
        visible = visible.replace(f"UUID{place}", f"{0x63 + place:x}{b'udalink-emulZ'.hex()}00{place:02x}")
    env = {"CUDA_VISIBLE_DEVICES": visible}
    done = on_driver(
        "13.0", "-c", HEAD + dedent(program).replace("{devices}", str(devices)), device=f"sm_90:{devices}", env=env
    )
    assert done.returncode == 0, done.stderr
    code, listed, note = json.loads(done.stdout)
    assert listed == places
    assert (code == 0) == bool(places)
    assert noted in note
    assert done.stderr == (f"cudalink: {note}: cuInit returns {code}\n" if noted else "")


def test_a_wrong_option_of_pytest(run_pytest) -> None:
    """A wrong device is a usage error that names the option."""
    done = run_pytest("--cudalink-driver=13.0", "--cudalink-device=h300")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*--cudalink-device is 'h300' (from option); *; did you mean h200[?]"])


#: What `cudalink driver record` writes of two devices with few multiprocessors, and an attribute of a later driver.
DEVICE = {"name": "Strange; GPU", "arch": "sm_90", "memory": 1 << 30, "attributes": {"16": 77, "200": 5}}
RECORDED = {"cuda": "12.8", "driver": "570.86.10", "devices": [DEVICE] * 2}


@pytest.fixture
def recorded(tmp_path):
    """The path of such a file."""
    path = tmp_path / "driver.json"
    path.write_text(json.dumps(RECORDED), encoding="utf-8")
    return path


def test_a_recorded_device_is_emulated(check, recorded, monkeypatch) -> None:
    """Name, memory and attributes are the file's, what it lacks is the model's, and children get them, too."""
    monkeypatch.chdir(recorded.parent)
    planned = emulation_for("13.0", device="driver.json")
    assert (planned.devices.arch, planned.devices.number) == ("sm_90", 2)
    assert str(planned.devices) == f"{recorded}:2"
    assert from_environment(planned.environment()) == planned
    assert emulation_for("13.0", device=str(planned.devices)) == planned
    program = """
    name = create_string_buffer(64)
    cuda.cuInit(0)
    print(*(get(cuda.cuDeviceGetAttribute, c_int, attribute, 1) for attribute in (16, 200, 75, 1)))
    cuda.cuDeviceGetName(name, 64, 1)
    print(name.value.decode(), get(cuda.cuDeviceTotalMem_v2, c_size_t, 1))
    """
    assert " ".join(check(program, device="driver.json").split()) == f"77 5 9 1024 Strange? GPU {1 << 30}"


def test_a_recorded_driver_is_emulated(recorded, run_pytest) -> None:
    """Version, release and devices are the file's, unless others are given."""
    planned = emulation_for(str(recorded))
    assert (str(planned.version), planned.release, planned.devices.number) == ("12.8", "570.86.10", 2)
    other = emulation_for(str(recorded), device="l4", release="570.1")
    assert (str(other.version), other.release, str(other.devices)) == ("12.8", "570.1", "l4")
    module = f"import os\ndef test(): assert os.environ['CUDALINK_EMULATOR_PROFILE'].endswith({str(recorded)!r})"
    run_pytest(f"--cudalink-driver={recorded}", "-ocudalink_toolchains=never", module=module).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("devices", "complaint"),
    [
        ([], "shows no driver with a device; expected a file that cudalink driver record -o FILE wrote"),
        ([{"name": "X"}], "shows no driver with a device"),
        ([{**DEVICE, "attributes": {"16": "x"}}], "shows no driver with a device"),
        (5, "shows no driver with a device"),
        ([{**DEVICE, "arch": "sm_50"}], "is of sm_50, which cannot be emulated; expected sm_70"),
    ],
)
def test_recordings_without_a_device_that_can_be_emulated(recorded, devices, complaint) -> None:
    """The error names the file, why, and what is expected."""
    recorded.write_text(json.dumps({**RECORDED, "devices": devices}), encoding="utf-8")
    for option in ({"version": "13.0", "device": str(recorded)}, {"version": str(recorded)}):
        with pytest.raises(EmulatorError, match=f"{re.escape(str(recorded))} {re.escape(complaint)}"):
            emulation_for(**option)


def test_a_recording_that_is_not_there(tmp_path) -> None:
    file, said = f"{tmp_path}/x.json", r"x\.json cannot be read: No such file or directory; correct"
    for parameter, option in (("device", {"version": "13.0", "device": f"{file}:2"}), ("version", {"version": file})):
        with pytest.raises(EmulatorError, match=said) as raised:
            emulation_for(**option)
        assert raised.value.parameter == parameter


PROGRAMS = {
    "a_small_device_is_soon_full": """
# What is set is all there is.
start()
address = c_uint64()
assert [cuda.cuMemAlloc_v2(byref(address), size) for size in ((64 << 20) + 1, 64 << 20, 1)] == [2, 0, 2]
""",
    "checks_come_in_the_order_of_a_real_driver": """
# A device that does not exist is 101 before the buffer is looked at; a bus ID that does not fit is cut.
start()
text = char_buffer(b"untouched")
for name in ("cuDeviceGetName", "cuDeviceGetPCIBusId"):
    assert getattr(cuda, name)(None, 0, 7) == 101
    assert getattr(cuda, name)(None, 64, 0) == 1
    assert getattr(cuda, name)(text, 0, 0) == 1
assert cuda.cuDeviceGetPCIBusId(text, 12, 0) == 1 and text.value == b"0000:01:00."
ok(cuda.cuDeviceGetPCIBusId(text, 13, 0))
assert text.value == b"0000:01:00.0"
""",
}
test_programs = programs(PROGRAMS, a_small_device_is_soon_full={"device": "memory=64MiB"})

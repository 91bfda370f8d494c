"""Occupancy: as recorded, and as the rules say for devices without a recording."""

import json
from pathlib import Path
from typing import Any

import pytest

from campaigns.conformance.occupancy_record import questions

HERE = Path(__file__).parent
RECORDED = sorted((HERE.parents[1] / "campaigns" / "conformance" / "recorded").glob("occupancy-*.json"))
#: FUNCTION_ATTRIBUTES of the recording program in which compilers may differ: local memory and registers.
OF_COMPILERS = (3, 4)


def differing(recorded: dict[str, Any], answered: dict[str, Any]) -> list[str]:
    """What the emulated driver answers otherwise, for kernels that the compiler made alike."""
    names = [str(question) for question in questions()]
    faults = []
    for real, ours in zip(recorded["kernels"], answered["kernels"], strict=True):
        if any(real["attributes"][at] != ours["attributes"][at] for at in OF_COMPILERS):
            continue
        what = f"{real['values']} values, {real['shared']} bytes, {real['directives']!r}"
        if real["attributes"] != ours["attributes"]:
            faults.append(f"{what}: attributes {real['attributes']} != {ours['attributes']}")
        faults += [
            f"{what}: {name}: {answer} != {other}"
            for name, answer, other in zip(names, real["answers"], ours["answers"], strict=True)
            if answer != other
        ]
    return faults


@pytest.mark.parametrize("recording", RECORDED, ids=lambda path: path.stem)
def test_as_recorded(on_driver, tmp_path, recording: Path) -> None:
    """The recording program gets the answers that it got from a real driver."""
    recorded = json.loads(recording.read_text(encoding="utf-8"))
    arch = recorded["attributes"]["75"] * 10 + recorded["attributes"]["76"]
    out = tmp_path / "answers.json"
    done = on_driver("13.0", "-m", "campaigns.conformance.occupancy_record", str(out), device=f"sm_{arch}")
    assert done.returncode == 0, done.stderr
    answered = json.loads(out.read_text(encoding="utf-8"))

    different = differing(recorded, answered)

    assert recorded["attributes"] == answered["attributes"]
    assert not different, f"{len(different)}:\n" + "\n".join(different[:20])
    answered["kernels"][0]["answers"][1] = [1]  # a change is seen
    assert differing(answered, recorded) == ["1 values, 0 bytes, '': ('active', 31, 0): [1] != [0, 32]"]


@pytest.mark.parametrize(
    ("arch", "blocks"),
    # 32 registers, 256 threads, 4 KiB of static shared memory: 8 warps of 1,024 registers, 5 KiB with the reserve
    [("sm_70", 8), ("sm_75", 4), ("sm_80", 8), ("sm_86", 6), ("sm_89", 6), ("sm_90", 8), ("sm_120", 6)],
)
def test_by_hand(check, arch: str, blocks: int) -> None:
    """Threads limit a plain kernel; shared memory and the carve-out do when more of it is asked for."""
    check(
        f"""
start()
module = loaded(small_ptx("8.7" if "{arch}" == "sm_120" else "8.0", "{arch}"))
other = kernel_of(module, "other")
value, size, none = c_int(), c_size_t(), c_size_t(0)
active = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor
def fits(kernel, threads, shared=0):
    return get(active, c_int, kernel, threads, c_size_t(shared))
assert [fits(other, *asked) for asked in ((256, 4096), (256, 49153), (2048, 0))] == [{blocks}, 0, 0]
ok(cuda.cuFuncSetAttribute(other, 9, 0))  # the smallest carve-out
smallest = fits(other, 32, 4096)
ok(cuda.cuFuncSetAttribute(other, 9, 100))
assert fits(other, 32, 4096) > smallest > 0
assert fits(kernel_of(module, "small"), 129) > 0  # more than .maxntid allows is not looked at
# more shared memory never leaves room for more blocks, and what is said to be available is, but for the reserve
reserve, processors = (get(cuda.cuDeviceGetAttribute, c_int, number, 0) for number in (111, 16))
for threads in range(32, 1025, 96):
    fitting = [fits(other, threads, shared) for shared in range(0, 49153, 4096)]
    assert fitting == sorted(fitting, reverse=True)
    for blocks in range(1, fitting[0] + 1):
        there = get(cuda.cuOccupancyAvailableDynamicSMemPerBlock, c_size_t, other, blocks, threads)
        assert fits(other, threads, max(0, there - reserve)) >= blocks
# no other block keeps more threads than the recommended one
grid, best = get(cuda.cuOccupancyMaxPotentialBlockSize, c_int, c_int, other, None, c_size_t(0), 0)
assert grid == processors * fits(other, best)
fitting = [fits(other, threads) for threads in range(32, 1025, 32)]
assert fitting == sorted(fitting, reverse=True)
assert max(warps * 32 * blocks for warps, blocks in enumerate(fitting, 1)) == best * fits(other, best)
# arguments
for *arguments, code in ((None, other, 32, 1), (byref(value), None, 32, 400), (byref(value), c_void_p(0x1234), 32, 400),
                         (byref(value), other, 0, 1), (byref(value), other, -5, 1)):
    assert active(*arguments, none) == code, arguments
assert cuda.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(byref(value), other, 32, c_size_t(0), 2) == 1
for blocks in (0, 33):
    assert cuda.cuOccupancyAvailableDynamicSMemPerBlock(byref(size), other, blocks, 32) == 1
assert cuda.cuOccupancyMaxPotentialBlockSize(byref(value), None, other, None, c_size_t(0), 0) == 1
ok(cuda.cuCtxSetCurrent(None))
assert active(byref(value), other, 32, c_size_t(0)) == 201
""",
        device=arch,
    )


def test_clusters(check, tmp_path) -> None:
    """Clusters that are resident at once on sm_90; a device without clusters says so."""
    program = """
start()
module = loaded(small_ptx("8.0", "sm_80"))
other = kernel_of(module, "other")
config, value = (c_uint64 * 7)(), c_int()
numbers = cast(config, POINTER(c_uint))
for at, one in enumerate((96, 1, 1, 1024, 1, 1)):
    numbers[at] = one
cluster = (c_uint * 18)(4, 0, 4, 1, 1)
config[5], numbers[12] = addressof(cluster), 1
"""
    check(
        program
        + """
# 124 multiprocessors are in groups of at least 4, 2 blocks on each
assert get(cuda.cuOccupancyMaxActiveClusters, c_int, other, config) == 62
cluster[2] = 5
assert cuda.cuOccupancyMaxActiveClusters(byref(value), other, config) == 912
cluster[2] = 4
assert get(cuda.cuOccupancyMaxPotentialClusterSize, c_int, other, config) == 8
ok(cuda.cuFuncSetAttribute(other, 14, 1))
assert get(cuda.cuOccupancyMaxPotentialClusterSize, c_int, other, config) == 16
assert cuda.cuOccupancyMaxPotentialClusterSize(byref(value), other, None) == 1
"""
    )
    # of 114 multiprocessors, which no recorded device has, 16 are in one group and 14 in each of 7
    path, device = (
        tmp_path / "smaller.json",
        {"name": "H100", "arch": "sm_90", "memory": 1 << 30, "attributes": {"16": 114}},
    )
    path.write_text(json.dumps({"cuda": "12.8", "driver": "570.86.10", "devices": [device]}), encoding="utf-8")
    check(program + "assert get(cuda.cuOccupancyMaxActiveClusters, c_int, other, config) == 57\n", device=str(path))
    check(program + "assert refused('cuOccupancyMaxActiveClusters', byref(value), other, config)\n", device="sm_80")

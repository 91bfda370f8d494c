"""Ask a CUDA driver for its answers to damaged and contradictory link inputs; each question in a child process.

``python campaigns/findings/driver_answers.py FILE`` writes them as JSON, with the driver's version and the device. It
needs Python and a driver, nothing else: a real one, or `cudalink driver run -- python ...`. A question takes at most
20 s.
"""

from __future__ import annotations

import ctypes
import json
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

SAMPLES = Path(__file__).parents[2] / "tests" / "data" / "artifacts"
CUBIN, PTX, FATBIN, NVVM = 0, 1, 2, 5
INFO, INFO_SIZE, ERROR, ERROR_SIZE, TARGET = 3, 4, 5, 6, 9
BUFFER = 4096

Inputs = list[tuple[int, bytes]]


def sample(name: str) -> bytes:
    """The bytes of a sample; PTX ends with a NUL, as the driver requires."""
    data = (SAMPLES / name).read_bytes()
    return data + b"\0" if name.endswith(".ptx") else data


def with_section(cubin: bytes, name: bytes, offset: int, value: bytes) -> bytes:
    """A cubin in whose section header of a name some bytes are replaced."""
    changed = bytearray(cubin)
    (table,), (count, names) = struct.unpack_from("<Q", cubin, 0x28), struct.unpack_from("<HH", cubin, 0x3C)
    (texts,) = struct.unpack_from("<Q", cubin, table + 64 * names + 24)
    for header in range(table, table + 64 * count, 64):
        start = texts + struct.unpack_from("<I", cubin, header)[0]
        if cubin[start : cubin.index(b"\0", start)] == name:
            changed[header + offset : header + offset + len(value)] = value
    return bytes(changed)


def steps_of_a_link(driver: ctypes.CDLL, inputs: Inputs, *, target: int | None) -> None:
    """Link some inputs, and print each answer as soon as it is there."""
    info, error = ctypes.create_string_buffer(BUFFER), ctypes.create_string_buffer(BUFFER)
    keys, values = (
        [INFO, INFO_SIZE, ERROR, ERROR_SIZE],
        [ctypes.addressof(info), BUFFER, ctypes.addressof(error), BUFFER],
    )
    if target:
        keys, values = [*keys, TARGET], [*values, target]
    options, slots = (ctypes.c_int * len(keys))(*keys), (ctypes.c_void_p * len(values))(*values)
    state, image, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    say("cuLinkCreate", driver.cuLinkCreate_v2(len(keys), options, slots, ctypes.byref(state)))
    for number, (kind, data) in enumerate(inputs):
        say("cuLinkAddData")
        name = f"input{number}".encode()
        code = driver.cuLinkAddData_v2(state, kind, data, ctypes.c_size_t(len(data)), name, 0, None, None)
        say("cuLinkAddData", code, log=error.value.decode(errors="replace"))
    say("cuLinkComplete")
    code = driver.cuLinkComplete(state, ctypes.byref(image), ctypes.byref(size))
    say("cuLinkComplete", code, size=size.value, log=error.value.decode(errors="replace"))
    if code == 0:
        say("cuModuleLoadData")
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        say("cuModuleLoadData", driver.cuModuleLoadData(ctypes.byref(module), image))
        if module:
            say("cuModuleGetFunction", driver.cuModuleGetFunction(ctypes.byref(function), module, b"apply_transform"))
    say("cuLinkDestroy", driver.cuLinkDestroy(state))


def say(call: str, code: int | None = None, **more: object) -> None:
    """Print that a call begins, or what it returned."""
    print(json.dumps({"call": call, "code": code, **more}), flush=True)


def linking(make: Callable[[], Inputs], target: int | None = 90) -> Callable[[ctypes.CDLL], None]:
    """A question: what happens if these inputs are linked."""
    return lambda driver: steps_of_a_link(driver, make(), target=target)


def loading(function: str, make: Callable[[], bytes]) -> Callable[[ctypes.CDLL], None]:
    """A question: what happens if this image is loaded."""

    def ask(driver: ctypes.CDLL) -> None:
        data, handle = make(), ctypes.c_void_p()
        more = (None, None, 0, None, None, 0) if function == "cuLibraryLoadData" else ()
        say(function)
        say(function, getattr(driver, function)(ctypes.byref(handle), data, *more))

    return ask


def cut(name: str, size: int) -> bytes:
    """The first bytes of a sample; a negative size counts from its end."""
    return sample(name)[:size]


CUTS = (64, 200, 1000, 1400, 2000, -64, -1)
DAMAGED = {
    "a section of debug information of an unknown type": (b".debug_frame", 4, b"\xff\0\0\0"),
    "a section that is larger than the file": (b".nv.info", 32, b"0" * 8),
}
QUESTIONS: dict[str, Callable[[ctypes.CDLL], None]] = {
    "two cubins": linking(lambda: [(CUBIN, sample(f"13.0/{one}.cubin")) for one in ("main", "user")]),
    "two PTX": linking(lambda: [(PTX, sample(f"13.0/{one}.ptx")) for one in ("main", "user")]),
    **{
        f"link a cubin cut at {size}": linking(lambda size=size: [(CUBIN, cut("13.0/user.cubin", size))])  # type: ignore[misc]
        for size in CUTS
    },
    **{
        f"{function} of a cubin cut at {size}": loading(function, lambda size=size: cut("13.0/linked.cubin", size))  # type: ignore[misc]
        for function in ("cuModuleLoadData", "cuLibraryLoadData")
        for size in CUTS
    },
    **{
        f"link {name}": linking(
            lambda change=change: [  # type: ignore[misc]
                (CUBIN, with_section(sample("13.0/user.cubin"), *change)),
                (CUBIN, sample("13.0/main.cubin")),
            ]
        )
        for name, change in DAMAGED.items()
    },
    "link half a fatbin": linking(lambda: [(FATBIN, cut("nvcc/user-plain.fatbin", 1688))]),
    "cuModuleLoadData of half a fatbin": loading("cuModuleLoadData", lambda: cut("nvcc/user-plain.fatbin", 1688)),
    "a failed add, then complete": linking(lambda: [(PTX, b".version 99.9\n.target sm_90\n.address_size 64\n\0")]),
    "a failed add, then an undefined symbol": linking(
        lambda: [(PTX, b".version 99.9\n.target sm_90\n.address_size 64\n\0"), (PTX, sample("13.0/main.ptx"))]
    ),
    "nothing added": linking(list),
    "an undefined symbol, with CU_JIT_TARGET": linking(lambda: [(PTX, sample("13.0/main.ptx"))]),
    "an undefined symbol, without CU_JIT_TARGET": linking(lambda: [(PTX, sample("13.0/main.ptx"))], target=None),
    "an undefined symbol in a cubin, without CU_JIT_TARGET": linking(
        lambda: [(CUBIN, sample("13.0/main.cubin"))], target=None
    ),
    "one PTX twice": linking(lambda: [(PTX, sample(f"13.0/{one}.ptx")) for one in ("user", "user", "main")]),
    "one cubin twice": linking(lambda: [(CUBIN, sample(f"13.0/{one}.cubin")) for one in ("user", "user", "main")]),
    **{
        f"cubins of {release}": linking(
            lambda release=release: [(CUBIN, sample(f"{release}/{one}.cubin")) for one in ("main", "user")]  # type: ignore[misc]
        )
        for release in ("12.9", "13.2", "13.5")
    },
    **{
        f"PTX of {release}": linking(
            lambda release=release: [(PTX, sample(f"{release}/{one}.ptx")) for one in ("main", "user")]  # type: ignore[misc]
        )
        for release in ("12.9", "13.2", "13.5")
    },
    "LTO-IR of 13.0": linking(lambda: [(NVVM, sample(f"13.0/{one}.ltoir")) for one in ("main", "user")]),
}


def open_driver() -> ctypes.CDLL:
    """The driver, with the primary context of its first device as current."""
    driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    for code in (
        driver.cuInit(0),
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        driver.cuCtxSetCurrent(context),
    ):
        if code:
            raise SystemExit(f"the driver returns {code}; expected 0: is there a GPU?")
    return driver


def answer(question: str) -> dict[str, object]:
    """What the driver answers, and how the process ended that asked it."""
    command = [sys.executable, __file__, "--ask", question]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        try:
            printed, errors = process.communicate(timeout=20)
            end = f"signal {-process.returncode}" if process.returncode < 0 else f"exit {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            (printed, errors), end = process.communicate(), "still running after 20 s"
    lines = printed.splitlines()
    calls = [json.loads(one) for one in lines if one.startswith("{")]
    done = [
        one for one, after in zip(calls, [*calls[1:], None], strict=True) if one["code"] is not None or after is None
    ]
    other = [one for one in [*lines, *errors.splitlines()] if not one.startswith("{")]
    return {"end": end, "calls": done, "printed": other}


def describe() -> dict[str, object]:
    """The driver and the device, from the driver itself."""
    driver, version, name = open_driver(), ctypes.c_int(), ctypes.create_string_buffer(100)
    driver.cuDriverGetVersion(ctypes.byref(version))
    driver.cuDeviceGetName(name, len(name), 0)
    management, release = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.create_string_buffer(100)
    management.nvmlInit_v2()
    management.nvmlSystemGetDriverVersion(release, len(release))
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "driver": release.value.decode(),
        "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
        "device": name.value.decode(),
    }


def main(arguments: list[str]) -> int:
    """Ask one question, or all of them."""
    if arguments[:1] == ["--ask"]:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is an answer, and its core is of no use
        QUESTIONS[arguments[1]](open_driver())
        return 0
    if arguments[:1] == ["--describe"]:
        print(json.dumps(describe()))
        return 0
    described = subprocess.run([sys.executable, __file__, "--describe"], capture_output=True, text=True, check=True)
    with ThreadPoolExecutor(4) as pool:
        answers = dict(zip(QUESTIONS, pool.map(answer, QUESTIONS), strict=True))
    content = {**json.loads(described.stdout), "answers": answers}
    Path(arguments[0]).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    for question, given in content["answers"].items():
        codes = " ".join(f"{one['call']}={one['code']}" for one in given["calls"])
        print(f"{question}: {given['end']}: {codes}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Which functions of the driver answer CUDA_ERROR_NOT_PERMITTED inside a host function and inside a callback.

Each function is called there with zeros for arguments; a process that one of them ends is started again behind it.
"""

import json
import subprocess
import sys

from pytest_cudalink.base.tables import read_table

#: Functions that end the process, reset it or wait for something outside.
LEFT_OUT = ("cuProfiler", "cuCheckpoint", "cuCoredump", "cuEGL", "cuGL", "cuVDPAU", "cuInit", "cuDevicePrimaryCtxReset")

PROBE = """
import ctypes, json, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
way, *names = sys.argv[1:]
context, stream = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
def ask():
    for name in names:
        print(name, end=" ", flush=True)
        print(getattr(cuda, name)(*[ctypes.c_void_p(0)] * 12) if hasattr(cuda, name) else "absent", flush=True)
    os._exit(0)
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def host(data): ask()
@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
def callback(stream, code, data): ask()
if way == "host": assert cuda.cuLaunchHostFunc(stream, host, None) == 0
else: assert cuda.cuStreamAddCallback(stream, callback, None, 0) == 0
cuda.cuStreamSynchronize(stream)
"""


def answers_in(caller: str, names: list[str]) -> dict[str, str]:
    """The answers of functions in one of the two places; ``"ends with -11"`` for one that ended the process."""
    answers: dict[str, str] = {}
    while len(answers) < len(names):
        left = [name for name in names if name not in answers]
        command = [sys.executable, "-c", PROBE, caller, *left]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
            text, end = done.stdout, f"ends with {done.returncode}"
        except subprocess.TimeoutExpired as error:
            text, end = (error.stdout or b"").decode(), "hangs"
        for line in text.splitlines():
            name, _, code = line.partition(" ")
            answers[name] = code or end
        if not text:
            raise RuntimeError(f"no answer at all in {caller}: {end}")
    return answers


def main() -> None:
    """Print a JSON object: for each function its answers in a host function and in a callback."""
    every = {name for release in read_table("emulator/functions.toml")["symbols"].values() for name in release}
    names = sorted(name for name in every if not (name.startswith(LEFT_OUT) or name.endswith(("_ptsz", "_ptds"))))
    answers = {way: answers_in(way, names) for way in ("host", "callback")}
    print(json.dumps({name: [answers[way][name] for way in answers] for name in names}))


if __name__ == "__main__":
    main()

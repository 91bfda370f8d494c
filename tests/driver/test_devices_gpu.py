"""Which devices a driver shows, real or emulated; every answer is that of an H200."""

import json
import subprocess
import sys

#: Prints the answers of cuInit and cuDeviceGetCount and the number of devices for each value, in a child of its own;
#: None leaves the variable out. UUID is that of device 0, DIGITS its hexadecimal digits.
PROGRAM = """
import ctypes, json, os, sys

def ask(value, then=None):
    answers, end = os.pipe()
    if not os.fork():
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        if value is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = value
        cuda, number, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(-1), []
        for second in (None, then)[: 1 + (then is not None)]:
            if second is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = second
            found += [cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(number)), number.value]
        uuid = ctypes.create_string_buffer(16)
        cuda.cuDeviceGetUuid_v2(uuid, 0)
        os.write(end, json.dumps([found, uuid.raw.hex()]).encode())
        os._exit(0)
    os.close(end)
    os.wait()
    return json.loads(os.read(answers, 9999))

_, digits = ask(None)
uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
for value, then in json.load(sys.stdin):
    words = value.replace("upper", uuid.upper()).replace("UUID", uuid).replace("DIGITS", digits)
    print(json.dumps(ask(words, then)[0]))
"""
NONE, TWICE, ONE = [100, 3, -1], [101, 3, -1], [0, 0, 1]


def test_visible_devices() -> None:
    """Each value shows the devices that it names, or cuInit fails."""
    expected = {
        **dict.fromkeys(("0", "0,99", "0,-1", "0,", " 0", "0 ", "\t0", "0 ,99", "00", "+0", "-0"), ONE),
        # a number ends where its digits do, and has 32 bits
        **dict.fromkeys(("0x1", "0abc", "0 1", "0;1", "4294967296"), ONE),
        **dict.fromkeys(("", " ", "99", "99,0", "-1", "-1,0", ",0", "99999999999", "abc", "all", "NoDevFiles"), NONE),
        **dict.fromkeys(("GPU-UUID", "GPU-upper", "GPU-DIGITS", "GPU-UUID0", "GPU-UUID ", "MIG-UUID"), ONE),
        **dict.fromkeys(("gpu-UUID", "UUID", " GPU-UUID", "GPU-", "GPU-ffffffff", "MIG-GPU-UUID/0/0"), NONE),
        # the first entry says what the others are
        **dict.fromkeys(("GPU-UUID,0", "0,GPU-UUID", "GPU-UUID,x"), ONE),
        **dict.fromkeys(("0,0", "GPU-UUID,GPU-UUID", "0,0,99"), TWICE),
    }
    later = {("", "0"): NONE + ONE, ("0", ""): ONE + ONE}
    questions = [*((value, None) for value in expected), *later]
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, input=json.dumps(questions), stdout=subprocess.PIPE, text=True, check=True)
    by_question = dict(zip(questions, map(json.loads, done.stdout.splitlines()), strict=True))

    assert by_question == {**{(value, None): answer for value, answer in expected.items()}, **later}

"""When the driver touches memory of the caller of cuLink*: ``python -m campaigns.hardware.touches``.

Option keys, option values and both log buffers lie on pages of their own. For each step of a link a child process
protects one of them during that step: it dies if the driver touches the page. A second child may read, so that its
death shows a write. The answers are compared with those of driver 580.159.04.
"""

import ctypes
import mmap
import os
import signal
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from itertools import product
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

from campaigns.driver import Driver
from campaigns.hardware.result import Result
from pytest_cudalink.probes.libcuda import is_emulated

BLOCKS = ("keys", "values", "info log", "error log")
STEPS = ("create", "add", "complete", "destroy")
#: What each link logs. The first input is the sample's kernel.
CASES = {
    "no text": "nothing",
    "verbose": "info text at complete",
    "syntax error": "error text at add",
    "undefined symbol": "error text at complete",
}
_PTX = 1
_LOG = 4096
_PROT_NONE, _PROT_READ = 0, 1
_SYNTAX, _UNEXPECTED = b"\tret;", 97
_LIBC = ctypes.CDLL(None, use_errno=True)
_ARTIFACTS = Path(__file__).parents[2] / "tests" / "data" / "artifacts" / "12.9"
Answers = dict[tuple[str, str, str], str]


def expected(case: str, block: str, step: str) -> str:
    """Return what driver 580.159.04 does: ``"no"``, ``"reads"`` or ``"writes"``."""
    if block == "keys":
        return "reads" if step == "create" else "no"
    text = {"verbose": ("info log", "complete"), "syntax error": ("error log", "add")}
    written = text.get(case, ("error log", "complete") if case == "undefined symbol" else ("", ""))
    if step == "create" or written == (block, step):
        return "writes"
    return "writes" if block == "values" and step in ("add", "complete") else "no"


def _inputs(case: str) -> list[bytes]:
    """Return the PTX of a case, for any device since Turing."""
    main, user = (
        (_ARTIFACTS / f"{unit}.ptx").read_bytes().rstrip(b"\0").replace(b".target sm_90", b".target sm_75") + b"\0"
        for unit in ("main", "user")
    )
    if case == "syntax error":
        return [main.replace(_SYNTAX, b"\trett;")]
    return [main] if case == "undefined symbol" else [main, user]


def _child(case: str, block: str, step: str, mode: int) -> None:
    """Run one link up to a step, with one block protected in that step, and exit; an error is raised."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the driver's and Python's last words
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    driver, state = Driver(), c_uint64()
    driver.start()
    pages = {name: mmap.mmap(-1, 2 * mmap.PAGESIZE) for name in BLOCKS}
    at = {name: ctypes.addressof(ctypes.c_char.from_buffer(page)) for name, page in pages.items()}
    options = {3: at["info log"], 4: _LOG, 5: at["error log"], 6: _LOG, 12: int(case == "verbose")}
    (c_int * len(options)).from_address(at["keys"])[:] = list(options)
    (c_void_p * len(options)).from_address(at["values"])[:] = list(options.values())
    codes, handle, size = _inputs(case), byref(c_void_p()), byref(c_size_t())
    calls: dict[str, list[tuple[Any, ...]]] = {
        "create": [("cuLinkCreate_v2", len(options), at["keys"], at["values"], byref(state))],
        "add": [("cuLinkAddData_v2", state, _PTX, code, len(code), b"unit", 0, None, None) for code in codes],
        "complete": [("cuLinkComplete", state, handle, size)],
        "destroy": [("cuLinkDestroy", state)],
    }
    for name in STEPS:
        if name == step and _LIBC.mprotect(c_void_p(at[block]), c_size_t(2 * mmap.PAGESIZE), mode):
            raise OSError("mprotect")
        for call in calls[name]:
            (driver.must if name in ("create", "destroy") else driver.do)(*call)  # a link that fails is logged
        if name == step:
            os._exit(0)


def _dies(question: tuple[str, str, str, int]) -> bool:
    """Return whether a signal ends the child of a case, block, step and protection."""
    if not (child := os.fork()):
        try:
            _child(*question)
        finally:
            os._exit(_UNEXPECTED)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code > 0:
        raise RuntimeError(f"the link {question} ended with exit code {code}; expected 0 or a signal")
    return code < 0


def touched() -> Answers:
    """Return what the driver does to each block in each step, by case, block and step."""
    questions = [*product(CASES, BLOCKS, STEPS, (_PROT_NONE, _PROT_READ))]
    with ThreadPool(min(8, os.cpu_count() or 1)) as pool:
        died = dict(zip(questions, pool.map(_dies, questions, chunksize=1), strict=True))
    return {
        (case, block, step): "writes" if died[case, block, step, _PROT_READ] else "reads" if dead else "no"
        for (case, block, step, mode), dead in died.items()
        if mode == _PROT_NONE
    }


def compared() -> Result:
    """Each touch is one of driver 580.159.04, and no other."""
    result = Result()
    if is_emulated():
        result.skip("the pages", "the emulated driver reads and writes through the kernel, where no page bites")
        return result
    answers = touched()
    for case, logged in CASES.items():
        table = result.table(f"{case}: {logged} is logged", "memory", *STEPS)
        for block in BLOCKS:
            table.row(block, *(answers[case, block, step] for step in STEPS))
            for step in STEPS:
                answer, known = answers[case, block, step], expected(case, block, step)
                sentence = f"{case}: {block} at {step} is {answer!r}; expected {known!r}, as on driver 580.159.04"
                result.check(sentence, holds=answer == known)
    return result


if __name__ == "__main__":
    compared().write()

"""Cost of the checks of nvJitLink's contract for a link: the calls of cuda.bindings, with the checks and without.

``nox -s bench`` runs it. Two cubins are the shortest link that makes sense; PTX is compiled, which takes longer.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import measure

#: The stack of the code that creates and destroys a handle takes 10 µs, of 160 for two cubins and 20,000 for PTX.
LIMITS = {"cubin": 1.12, "ptx": 1.07}
ROUNDS = 41
ARCH = "sm_90"
LINKS = {"cubin": 40, "ptx": 2}


def link(kind: str, codes: list[bytes], number: int) -> None:
    """Link the codes so many times, each time by all calls that a library makes."""
    from cuda.bindings import nvjitlink

    kinds = {"cubin": nvjitlink.InputType.CUBIN, "ptx": nvjitlink.InputType.PTX}
    for _ in range(number):
        handle = nvjitlink.create(1, [f"-arch={ARCH}"])
        for code in codes:
            nvjitlink.add_data(handle, kinds[kind], code, len(code), "code")
        nvjitlink.complete(handle)
        nvjitlink.get_error_log_size(handle)
        nvjitlink.get_linked_cubin(handle, bytearray(nvjitlink.get_linked_cubin_size(handle)))
        nvjitlink.destroy(handle)


def processor_time(act: Callable[[], None]) -> measure.Seconds:
    """Return the processor time that this thread takes for an action."""
    begin = time.thread_time()
    act()
    return measure.Seconds(time.thread_time() - begin)


def main() -> int:
    """Compare the links in turn; return exit code 1 beyond a limit."""
    from pytest_cudalink.linker import sample
    from pytest_cudalink.loader.jitlink import jitlink_calls, jitlink_contract

    options = measure.arguments("jitlink_contract", ROUNDS, __doc__)
    report = measure.Report("jitlink_contract", "Links with the checks of nvJitLink's contract")
    contract = jitlink_contract.start()
    if contract is None:
        print("nvJitLink cannot be watched on this system")
        return 77
    for kind, number in LINKS.items():
        codes = [code.code for code in sample.compile_modules(kind, ARCH)]
        act = partial(link, kind, codes, number)
        act()  # loads the library
        jitlink_calls.look()

        def plain(act: Callable[[], None] = act) -> Callable[[], measure.Seconds]:
            return partial(processor_time, act)

        def checked(act: Callable[[], None] = act) -> Callable[[], measure.Seconds]:
            contract.check()

            def run() -> measure.Seconds:
                taken = processor_time(act)
                contract.stop()
                return taken

            return run

        times = measure.rounds({"without": plain, "with": checked}, options.rounds)
        table = f"{number} links of two modules, {kind}, processor time"
        report.row(table, "without checks", times["without"])
        report.row(table, "with checks", times["with"], times["without"])
        report.limit_ratio(table, times["with"], times["without"], LIMITS[kind])
    return report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())

"""Signals at random times during links, whose handler raises an exception; afterwards nothing may be left behind."""

import gc
import random
import signal
import time
from collections.abc import Callable
from functools import partial

from .scenarios import CONTAINED, begin, link_in_block, look, next_link
from .walk import Interrupt


def _raise(_number: int, _frame: object) -> None:
    raise Interrupt


def _interrupted(run: Callable[[], object], delay: float) -> bool:
    """Run with a signal after some seconds; return whether it ended the run."""
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, delay)
            run()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt:
        return True
    return False


def disturb(number: int, seed: int) -> dict[str, object]:
    """Disturb that many links of each backend; return how many a signal ended, and what was wrong afterwards."""
    begin()
    chosen = random.Random(seed)
    ways: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "driver": (partial(link_in_block, "driver"), next_link),
        "nvjitlink": (partial(link_in_block, "nvjitlink"), partial(next_link, "nvjitlink")),
        "contained": (partial(link_in_block, "nvjitlink", CONTAINED), partial(next_link, "nvjitlink", contained=True)),
    }
    signal.signal(signal.SIGALRM, _raise)
    ended, wrong = dict.fromkeys(ways, 0), []
    for name, (run, check) in ways.items():
        for _ in range(3):
            check()
        began = time.perf_counter()
        run()
        length = time.perf_counter() - began
        before = look()
        for _ in range(number):
            ended[name] += _interrupted(run, chosen.uniform(1e-6, length))
            gc.collect()
            try:
                check()
            except Exception as error:  # noqa: BLE001 (each is a finding)
                wrong.append(f"{name}: {error!r}")
            after = look()
            wrong += [f"{name}: {key}: {before[key]} -> {after[key]}" for key in before if before[key] != after[key]]
            before = after
    return {"ended": ended, "wrong": wrong}

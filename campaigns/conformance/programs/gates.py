"""Programs about order: gates that streams wait for, and calls that wait for them.

Three of their steps are not calls: ``["!clear", address, n]`` writes zeros, ``["!open", address]`` writes 1 to a gate,
a word of host memory that streams wait for, ``["!read", address]`` answers with a word. So 600 of a query, which is
asked again for a while, means "behind a closed gate". A call that does not come back while a gate is closed has
"waited" at the end of its answer, and all gates are opened for it.
"""

import concurrent.futures
import ctypes
import time
from collections.abc import Collection
from typing import Any

from pytest_cudalink.emulator.recorder.execute import Alias, Answer, Interpreter, Program

from .images import image

_STEPS = ("!clear", "!open", "!read")
WAITED = "waited"


class GatedInterpreter(Interpreter):
    """Runs a program on hardware, or here with what hardware has answered.

    `waits`: the calls that waited for a gate when the program was recorded. All gates are open behind them, and each
    other call gets more time, because a busy machine is slow without a gate; None on hardware.
    `done`: the calls that get that time, too, as they found work done.
    """

    def __init__(self, library: Any, waits: Collection[int] | None = None, done: Collection[int] = ()) -> None:
        super().__init__(library, image)
        self.waits, self.done = waits, done
        self.gates: list[int] = []
        #: Seconds for a call that may wait; None where there are no gates.
        self.patience: float | None = None
        self.waited = False

    def start(self, program: Program) -> None:
        gated = any(call[0] in _STEPS for call in program)
        super().start([["@"]] if gated else program)
        self.patience = (0.4 if self.waits is None else 3.0) if gated else None

    def call(self, number: int, call: list[Any]) -> Answer:
        usual, known = self.patience, number in (self.waits or ())
        if self.waits is not None:
            self.settled = 3.0 if number in self.done else 0.01
        self.patience, self.waited = 0.05 if known and self.threads else usual, False
        answer = self.step(*call) if call[0] in _STEPS else super().call(number, call)
        self.patience = usual
        if self.threads and call[0].startswith("cuStreamWaitValue") and answer and answer[0] == 0:
            self.gates.append(self.number(call[2]))
        if known:
            self.open(self.gates)
        return [*answer, WAITED] if self.waited and answer else answer

    def made(self, function: Any, arguments: list[Any], thread: int) -> int:
        if self.patience is None:
            return super().made(function, arguments, thread)
        future = self.threads[thread].submit(function, *arguments)
        try:
            return int(future.result(self.patience))
        except concurrent.futures.TimeoutError:
            self.waited = self.open(self.gates)
            return int(future.result())

    def step(self, symbol: str, *arguments: Any) -> Answer:
        """The answer of a step that is not a call."""
        self.values.append([])
        try:
            address = self.number(arguments[0])
        except Alias:
            return None
        if not address:
            return [1]
        if symbol == "!clear":
            ctypes.memset(address, 0, arguments[1])
        elif symbol == "!open":
            self.open([address])
        else:
            word, end = ctypes.c_uint32.from_address(address), time.monotonic() + self.settled
            while not word.value and time.monotonic() < end:
                time.sleep(0.001)
            return [0, word.value]
        return [0]

    def open(self, gates: list[int]) -> bool:
        """Open gates; return whether one was closed."""
        words = [ctypes.c_uint32.from_address(gate) for gate in gates]
        closed = [word for word in words if not word.value]
        for word in closed:
            word.value = 1
        return bool(closed)


def without_waits(real: list[Answer], ours: list[Answer]) -> list[list[Answer]]:
    """Both answers without the waits of the real driver; a wait of ours alone stays, and is a difference."""
    waited = {number for number, answer in enumerate(real) if WAITED in (answer or ())}

    def plain(number: int, answer: Answer) -> Answer:
        return [value for value in answer if value != WAITED] if answer and number in waited else answer

    return [[plain(*pair) for pair in enumerate(answers)] for answers in (real, ours)]

"""Running one program against a libcuda in a separate process, and writing down what every call answers.

A program is a list of calls ``[symbol, argument, ...]`` that says everything itself, so that a recording outlives the
table that it was made from. Arguments:

==============================  ======================================================================================
``7``                           a number
``"$3"``, ``"$3.1+64"``         the first (second) value that call 3 gave, plus an offset
``"@0"``, ``"@4096"``           an address in the program's host memory
``"&abs"``                      a function of the C library
``"!linked"``                   an image
``"#linked"``                   its size in bytes
``"'text"``                     a text
``["o", F]``, ``["o", F, n]``   room for one value or `n`, of letter F
``["io", F, v]``                the same, holding a value before
``["S", N, {...}, [...]]``      a structure N, the fields set, and those that are read back (``"field"``, ``"field:H"``)
``["A", [...]]``                several structures in a row
``["L", F, [...]]``             an array
``["P", [...]]``                kernel parameters: an array of pointers to 8-byte values
``["F", 1.0]``                  a float by value
``["M", n, v]``                 a structure of n bytes by value, from an earlier value or zeros
==============================  ======================================================================================

A symbol that ends with ``@1`` is called in a second thread. A query that answers 600 is asked again for a while.
`campaigns/conformance/programs/gates.py` adds steps that open and close gates.

``["!process", [call, ...]]`` runs calls in another process, if the library has a method `elsewhere`, and answers with
their answers; there ``"^3"`` stands for the bytes that call 3 of this program gave, ``"^fd3"`` for the descriptor.

Letters are those of `struct`, and ``h`` a new handle, ``H`` one that may be known (both with a letter for handles that
are small numbers and not addresses), ``s`` a text by pointer, ``c`` a text in place, ``X`` bytes and ``x`` a number
that no two machines share. An answer is ``[code, value, ...]``; a handle is ``0``, ``"new"``, ``"=3.1"`` or ``"?"``,
what was not written ``"-"``. None stands for a call that was left out because a handle that the program destroyed was
given to another object meanwhile. A death is the last answer: ``["signal", "SIGSEGV"]``.
"""

import concurrent.futures
import contextlib
import ctypes
import faulthandler
import json
import mmap
import os
import signal
import struct
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from ...base.tables import read_table

Program = list[list[Any]]
Answer = list[Any] | None

HOST_BYTES = 4 << 20
UNTOUCHED = 0xEE
_SIZES = {letter: struct.calcsize(letter) for letter in "iIqQbBfc"}
_SIZES |= {"h": 8, "H": 8, "s": 8, "x": 8, "X": 1, "H2": 2}
_MASK = (1 << 64) - 1
#: Queries, and what they answer while work is not done.
QUERIES = ("cuStreamQuery", "cuEventQuery", "cuEventElapsedTime", "cuEventElapsedTime_v2")
NOT_READY = 600
#: Seconds that work which nothing holds up may take.
SETTLED = 0.05


@cache
def layouts() -> dict[str, tuple[int, dict[str, tuple[int, str]]]]:
    """Return the structures: size, and of each field its offset and its letter of `struct`."""

    def field(word: str) -> tuple[str, tuple[int, str]]:
        name, offset, letter = word.rsplit(":", 2)
        return name, (int(offset), letter)

    table = read_table("recorder/layouts.toml").items()
    return {name: (layout["size"], dict(map(field, layout["fields"].split()))) for name, layout in table}


@cache
def texts() -> dict[str, str]:
    """Return the device code that questions load, by name: PTX, and texts that are damaged."""
    ptx: dict[str, str] = read_table("recorder/samples.toml")["images"]
    return {
        **ptx,
        "broken": ptx["program"].replace("st.shared.u32", "st.nowhere.u32"),
        "newer": ptx["program"].replace(".version 8.0", ".version 12.0"),
        "undefined": f"{ptx['other']}.extern .func missing();\n.visible .entry calls() {{ call missing; ret; }}\n",
        "text": "this is no image",
    }


def image(name: str) -> bytes:
    """Return the bytes of an image, which end with a NUL."""
    return texts()[name].encode() + b"\0"


class Alias(Exception):  # noqa: N818 (no error: the call is left out)
    """A handle was destroyed, and its value belongs to another object now."""


class Interpreter:
    """The memory of one program and what its handles are called.

    `aliases`: whether calls whose handle belongs to another object by now are left out.
    """

    def __init__(self, library: Any, images: Callable[[str], bytes] = image, *, aliases: bool = True) -> None:
        self.library = library
        self.image = images
        self.aliases = aliases
        self.libc = ctypes.CDLL(None)
        self.host = mmap.mmap(-1, HOST_BYTES)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.host))
        self.values: list[list[Any]] = []
        self.names: dict[tuple[str, int], tuple[str, bool]] = {}
        self.keep: list[Any] = []
        # what the current call gives back: address, letter, count
        self.outs: list[tuple[int, str, int]] = []
        self.threads: list[concurrent.futures.ThreadPoolExecutor] = []
        self.settled = SETTLED

    def buffer(self, data: bytes | int) -> int:
        """Address of new memory, aligned to 128 as a tensor map must be, that lives as long as the program."""
        size = data if isinstance(data, int) else len(data)
        room = ctypes.create_string_buffer(max(size, 1) + 256)
        self.keep.append(room)
        address = (ctypes.addressof(room) + 127) & ~127
        if isinstance(data, int):
            ctypes.memset(address, UNTOUCHED, size)
        else:
            ctypes.memmove(address, data, size)
        return address

    def number(self, value: Any) -> int:
        """What an argument or a field is as a number."""
        if isinstance(value, int):
            return value & _MASK
        if isinstance(value, list):
            return self.pointer(value)
        sign, rest = value[0], value[1:]
        if sign == "$":
            return self.known(rest)
        if sign == "@":
            return self.base + int(rest)
        if sign == "&":
            return ctypes.cast(getattr(self.libc, rest), ctypes.c_void_p).value or 0
        if sign in "!#":
            code = self.image(rest)
            return self.buffer(code) if sign == "!" else len(code)
        return self.buffer(rest.encode() + b"\0")

    def known(self, text: str) -> int:
        """The value of ``3.1+64``."""
        text, _, offset = text.partition("+")
        call, _, index = text.partition(".")
        values = self.values[int(call)]
        place = int(index or 0)
        if place >= len(values) or values[place] is None:
            return 0
        space, value, owner = values[place]
        if isinstance(value, bytes):
            return self.buffer(value)
        name, made = self.names.get((space, value), ("", False))
        if self.aliases and owner and made and name != f"{call}.{place}":
            raise Alias
        return (value + int(offset or 0)) & _MASK if value else 0

    def pointer(self, argument: list[Any]) -> int:
        """Address of what a list describes."""
        kind = argument[0]
        if kind == "o":
            count = argument[2] if len(argument) > 2 else 1
            address = self.buffer(_SIZES[argument[1][0]] * count)
            self.outs.append((address, argument[1], count))
            return address
        if kind == "io":
            letter = argument[1]
            data = struct.pack("<Q", self.number(argument[2]))[: _SIZES[letter[0]]]
            address = self.buffer(data)
            self.outs.append((address, letter, 1))
            return address
        if kind == "S":
            return self.structures([argument])
        if kind == "A":
            return self.structures(argument[1])
        if kind == "L":
            letter = "Q" if argument[1] in "hHsx" else argument[1]
            size = _SIZES[letter]
            if letter == "f":
                return self.buffer(struct.pack(f"<{len(argument[2])}f", *argument[2]))
            return self.buffer(b"".join(struct.pack("<Q", self.number(value))[:size] for value in argument[2]))
        if kind == "B":
            return self.buffer(bytes.fromhex(argument[1]))
        assert kind == "P", kind
        places = [self.buffer(struct.pack("<QQQQ", self.number(value), 0, 0, 0)) for value in argument[1]]
        return self.buffer(struct.pack(f"<{len(places)}Q", *places))

    def structures(self, several: list[Any]) -> int:
        """Address of structures that lie in a row; their fields to read are noted."""
        total = sum(layouts()[part[1]][0] for part in several)
        filler = b"\0" if any(part[2] for part in several) or not any(len(part) > 3 for part in several) else b"\xee"
        data = bytearray(filler * total)
        start, reads = 0, []
        for part in several:
            size, fields = layouts()[part[1]]
            for name, value in part[2].items():
                offset, letter = fields[name]
                if letter == "f":
                    struct.pack_into("<f", data, start + offset, value)
                else:
                    width = struct.calcsize(letter)
                    packed = struct.pack("<Q", self.number(value))[:width]
                    data[start + offset : start + offset + width] = packed
            for text in part[3] if len(part) > 3 else ():
                if text == "*":
                    reads.append((start, "X", size))
                    continue
                name, _, letter = text.partition(":")
                offset, own = fields[name]
                reads.append((start + offset, letter or {"H": "H2"}.get(own, own), 1))
            start += size
        address = self.buffer(bytes(data))
        self.outs += [(address + offset, letter, count) for offset, letter, count in reads]
        return address

    def argument(self, value: Any) -> Any:
        """What ctypes passes for an argument."""
        if isinstance(value, list) and value[0] == "F":
            return ctypes.c_float(value[1])
        if isinstance(value, list) and value[0] == "M":

            class Block(ctypes.Structure):
                _fields_ = [("bytes", ctypes.c_char * value[1])]

            block = Block()
            if len(value) > 2 and self.number(value[2]):
                ctypes.memmove(ctypes.byref(block), self.number(value[2]), value[1])
            return block
        return ctypes.c_uint64(self.number(value))

    def name(self, call: int, place: int, letter: str, value: int) -> Any:
        """What a handle is called; a new one gets the name of its place."""
        key, here = (letter[1:], value), f"{call}.{place}"
        if value == 0:
            return 0
        if letter[0] == "h":
            self.names[key] = (here, True)
            return "new"
        if self.base <= value < self.base + HOST_BYTES:
            return f"@{value - self.base}"
        known = self.names.get(key)
        if known is None:
            self.names[key] = (here, False)
            return "?"
        return f"={known[0]}"

    def read(  # noqa: PLR0911 (one for each letter)
        self, call: int, place: int, out: tuple[int, str, int], done: bool
    ) -> tuple[Any, Any]:
        """One value that a call gave: what later calls use, and what is compared."""
        address, letter, count = out
        kind = letter if letter == "H2" else letter[0]
        data = ctypes.string_at(address, _SIZES[kind] * count)
        if data == bytes([UNTOUCHED]) * len(data):
            return None, "-"
        if kind == "c":
            return None, data.split(b"\0", 1)[0].replace(b"\xee", b"~").decode("latin-1")
        if kind == "X":
            return ("", data, False), "x"
        if kind == "x":
            return ("", int.from_bytes(data[:8], "little"), False), "x"
        if kind == "f":
            return None, "f"
        if kind == "s":
            pointer = int.from_bytes(data, "little")
            return None, ctypes.string_at(pointer).decode("latin-1") if pointer and done else 0
        numbers = struct.unpack(f"<{count}{'Q' if kind in 'hH' and kind != 'H2' else kind[0]}", data)
        if kind not in ("h", "H"):
            value = numbers[0] if count == 1 else list(numbers)
            return ("", numbers[0], False), value
        if not done:
            return None, 0 if not numbers[0] else "?"
        filler = int.from_bytes(bytes([UNTOUCHED]) * 8, "little")
        names = ["-" if number == filler else self.name(call, place, letter, number) for number in numbers]
        return (letter[1:], numbers[0], kind == "h"), names[0] if count == 1 else names

    def value_of(self, argument: Any) -> Any:
        """What another process gets for an argument: bytes and file descriptors of this one in place of their names."""
        if isinstance(argument, list):
            return [self.value_of(element) for element in argument]
        if isinstance(argument, dict):
            return {key: self.value_of(element) for key, element in argument.items()}
        if not isinstance(argument, str) or argument[:1] != "^":
            return argument
        given = self.values[int(argument[1:].removeprefix("fd"))]
        data = given[0][1] if given and given[0] else b"\0" * 64
        if not argument.startswith("^fd"):
            return ["B", data.hex()]
        descriptor = int.from_bytes(data[:4], "little")
        with contextlib.suppress(OSError):
            os.set_inheritable(descriptor, True)  # noqa: FBT003
        return descriptor

    def asked_again(self, ask: Callable[[], int]) -> int:
        """The answer of a query that was not ready, after some time for work that nothing holds up."""
        code, end = NOT_READY, time.monotonic() + self.settled
        while code == NOT_READY and time.monotonic() < end:
            time.sleep(0.001)
            code = ask()
        return code

    def start(self, program: Program) -> None:
        """Start the threads of a program that names a second one."""
        if any("@" in call[0] for call in program):
            self.threads = [concurrent.futures.ThreadPoolExecutor(1) for _ in range(2)]

    def made(self, function: Any, arguments: list[Any], thread: int) -> int:
        """The code of a call, which is made in a thread if there are any."""
        return int(self.threads[thread].submit(function, *arguments).result() if self.threads else function(*arguments))

    def call(self, number: int, call: list[Any]) -> Answer:
        """The answer of one call."""
        self.outs = []
        self.values.append([])
        if call[0] == "!process":
            return [0, self.library.elsewhere(self.value_of(call[1]))]
        try:
            arguments = [self.argument(argument) for argument in call[1:]]
        except Alias:
            return None
        symbol, _, thread = call[0].partition("@")
        try:
            function = getattr(self.library, symbol)
        except AttributeError:
            return ["missing"]
        ask = partial(self.made, function, arguments, int(thread or 0))
        code = ask()
        if code == NOT_READY and symbol in QUERIES:
            code = self.asked_again(ask)
        answer = [code]
        for place, out in enumerate(self.outs):
            value, seen = self.read(number, place, out, code == 0)
            self.values[-1].append(value if code == 0 else None)
            answer.append(seen)
        return answer


def execute(program: Program, interpreter: Interpreter, seconds: int = 20) -> list[Answer]:
    """The answers of a program that runs in a forked child; a parent must not have initialized the library."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            faulthandler.disable()  # pytest's writes to a copy of stderr, and a death is an answer here
            signal.alarm(seconds)
            silent = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(silent, stream)
            interpreter.start(program)
            for number, call in enumerate(program):
                answer = json.dumps(interpreter.call(number, call), separators=(",", ":"))
                os.write(writing, answer.encode() + b"\n")
        except BaseException as error:  # noqa: BLE001 (a mistake of ours must be seen in the recording)
            os.write(writing, json.dumps(["error", repr(error)]).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        answers: list[Answer] = [json.loads(line) for line in pipe if line.endswith("\n")]
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        answers.append(["signal", signal.Signals(os.WTERMSIG(status)).name])
    return answers

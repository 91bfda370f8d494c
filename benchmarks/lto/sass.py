"""The machine code of an image: its instructions and its calls, from nvdisasm."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

#: Code that the compiler itself adds for rare operands, such as a division by a denormal; not a function of a unit.
SLOW_PATH = re.compile(r"__internal_|__cuda_sm\d+_")
_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*);")


def nvdisasm() -> str | None:
    """Return the path of nvdisasm: that of the wheels, else the one on the path; None if there is none."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(folder).glob("cu*/bin/nvdisasm")):
            return str(path)
    return shutil.which("nvdisasm") or shutil.which("nvdisasm", path="/usr/local/cuda/bin")


def read(image: bytes, program: str) -> str:
    """Disassemble an image; return nvdisasm's text."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(image)
        file.flush()
        done = subprocess.run([program, "-c", file.name], capture_output=True, text=True, check=True)
    return done.stdout


def calls_left(text: str) -> dict[str, int | str]:
    """Return what nvdisasm's text has: instructions, calls of functions, and calls of the compiler's slow paths.

    ``NOP`` is not counted: it pads the end of a function. Images of the same ``"code"`` have the same instructions.
    """
    counts = {"instructions": 0, "calls": 0, "slow-path calls": 0, "functions": 0}
    code = hashlib.sha256()
    for line in text.splitlines():
        if section := _SECTION.match(line):
            counts["functions"] += not SLOW_PATH.search(section[1])
        instruction = _INSTRUCTION.match(line)
        if instruction is None or instruction[1] == "NOP":
            continue
        counts["instructions"] += 1
        code.update(f"{instruction[0].strip()}\n".encode())
        if instruction[1].split(".")[0] == "CALL":
            counts["slow-path calls" if SLOW_PATH.search(instruction[2]) else "calls"] += 1
    return {**counts, "code": code.hexdigest()[:12]}

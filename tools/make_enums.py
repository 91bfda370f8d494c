"""Make `enums.toml` from the headers of CUDA: the enumerators of cuda.h with their numbers.

`tools.new_release` runs it with the toolchain of each release. The C compiler says what a name stands for. Where
releases disagree, as on the end of an enumeration, the newest one counts.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from pytest_cudalink.base import compiler

OUT = Path(__file__).parent.parent / "pytest_cudalink/data/emulator/enums.toml"
#: With it the header declares everything that it knows.
INTERNAL = "-D__CUDA_API_VERSION_INTERNAL"
ABOUT = """\
# The enumerators of cuda.h by their types, and its numbers that are macros, from the releases up to {last}: names and
# numbers alone. Made by tools/make_enums.py, which names the sources.
"""


def declared(include: Path) -> Iterator[tuple[str, str]]:
    """Each type of enumerators with each of its names; macros with a value belong to the type ``macros``."""
    command = [*compiler.find_compiler(), "-E", "-P", "-dD", INTERNAL, str(include / "cuda.h")]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    plain = re.sub(r"^#.*", "", text, flags=re.MULTILINE)  # a macro may stand between two enumerators
    for body, type_ in re.findall(r"typedef enum \w*\s*\{([^{}]*)\}\s*(CU\w+)\s*;", plain):
        yield from ((type_, name) for name in re.findall(r"(?:^|,)\s*(CU\w+)\b", body))
    yield from (("macros", name) for name in re.findall(r"^#define (CU_\w+|CUDA_ARRAY3D_\w+) \S", text, re.MULTILINE))


def numbers(include: Path, names: list[str]) -> dict[str, int]:
    """What names stand for, by the C compiler."""
    lines = "".join(f'  printf("{name} %lld\\n", (long long){name});\n' for name in names)
    text = f"#include <stdio.h>\n#include <cuda.h>\nint main(void) {{\n{lines}}}\n"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "numbers.c")
        source.write_text(text, encoding="utf-8")
        command = [
            *compiler.find_compiler(),
            "-w",
            INTERNAL,
            f"-I{include}",
            str(source),
            "-o",
            str(source.with_suffix("")),
        ]
        subprocess.run(command, check=True)
        output = subprocess.run([source.with_suffix("")], check=True, capture_output=True, text=True).stdout
    return {name: int(number) for name, number in map(str.split, output.splitlines())}


def write(folders: Iterable[Path]) -> None:
    """Write the table from folders with headers, each named after its release."""
    types: dict[str, dict[str, int]] = {}
    seen: set[str] = set()
    newest_first = sorted(folders, key=lambda folder: tuple(map(int, folder.name.split("."))), reverse=True)
    for folder in newest_first:
        (header,) = folder.rglob("cuda.h")
        known = dict.fromkeys(declared(header.parent))
        values = numbers(header.parent, [name for _, name in known])
        for type_, name in known:
            if name not in seen:
                types.setdefault(type_, {})[name] = values[name]
        seen.update(values)
    lines = [ABOUT.format(last=newest_first[0].name)]
    for type_, names in sorted(types.items()):
        lines += [f"[{type_}]", *(f"{name} = {number}" for name, number in names.items()), ""]
    OUT.write_text("\n".join(lines), encoding="utf-8")

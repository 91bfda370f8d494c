"""The sources of the emulated driver's native libraries; and the headers that are generated for them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from .sources import PACKAGE, READER, READER_SOURCES, SHARED, WORKER_CLIENT

_EMULATOR = PACKAGE / "emulator"
NATIVE = _EMULATOR / "native"
_DATA = PACKAGE / "data" / "emulator"
#: What the C shares with Python.
_SHARED_DATA = PACKAGE / "data"
_COMMON = (SHARED / "loaded_object.c", SHARED / "locks.c")
#: The driver in which functions with 32-bit sizes and addresses got a second form.
_WIDENED = 3020
_GRAPHICS = ("cuGL", "cuGraphics", "cuVDPAU")
#: Written at each build; git ignores it.
GENERATED = _EMULATOR / "generated"

#: The files of the driver, low to high: each includes only what stands before it, on its own floor or on a lower one.
#: The types of `abi.h` and the reader of device code (`artifacts/native/`) lie below them all.
FLOORS = (
    ("config", "profiles", "visible", "own_symbols", "event_log", "notes", "address_tree"),
    ("caller_memory", "call_stacks", "violations", "handles", "use_after_destroy", "symbols"),
    ("sticky", "faults", "sweep", "waits", "calls", "processes", "order_findings"),
    ("image", "fatbins", "options", "jit_compiler"),
    ("errors", "devices", "occupancy_rules", "array_formats"),
    ("contexts", "context_settings"),
    (
        "streams",
        "clocks",
        "conflicts",
        "happens_before",
        "user_objects",
        "graph_parameters",
        "work_order",
        "openers",
        "waiters",
        "queues",
        "schedule",
        "graphs",
        "capture",
        "stream_queries",
        "stream_events",
        "no_wait",
        "promises",
    ),
    ("tools",),
    (
        "shared_memory",
        "device_addresses",
        "blocks",
        "accesses",
        "graph_memory",
        "pools",
        "pool_attributes",
        "watched_copies",
        "allocations",
    ),
    ("physical_memory", "virtual_memory", "managed", "pointers", "ipc", "external_memory"),
    ("arrays", "copied_bytes", "memcpy_memset", "batch_copies", "stream_operations", "works"),
    ("textures", "texture_references", "tensor_maps"),
    ("link_state", "link_memory", "link_inputs", "link"),
    ("module_image", "kernels", "module"),
    ("occupancy", "launches"),
    ("graph_rules", "graph_exec", "graph_nodes", "graph_queries", "graph_launch"),
    ("green_contexts",),
    ("alive", "exports", "procaddr"),
)

#: The files of libnvidia-ml.so.1, likewise; the first floor is of the driver's files.
NVML_FLOORS = (
    ("config", "profiles", "own_symbols"),
    ("nvml",),
    ("nvml_identity", "nvml_clocks", "nvml_memory", "nvml_links", "nvml_events"),
    ("nvml_system",),
    ("nvml_answers",),
)


def _read(name: str, folder: Path = _DATA) -> dict[str, Any]:
    return tomllib.loads((folder / name).read_text(encoding="utf-8"))


def _number(release: str) -> int:
    """Return a CUDA version as the driver writes it: 13000 for ``"13.0"``."""
    major, minor = map(int, release.split("."))
    return major * 1000 + minor * 10


def _limits() -> str:
    """limits.inc: the limits that Python and C share."""
    lines = [
        "#ifndef CUDALINK_LIMITS",
        "#define CUDALINK_LIMITS",
    ]
    limits: dict[str, int] = _read("limits.toml", _SHARED_DATA)["limits"]
    lines += ["enum {", *(f"  LIMIT_{name.replace('-', '_').upper()} = {value}," for name, value in limits.items())]
    return "\n".join([*lines, "};", "#endif", ""])


def _releases() -> str:
    """releases.inc: the last releases of all and of CUDA 12; the nvJitLink and the newest PTX of each release."""
    releases: dict[str, dict[str, Any]] = _read("releases.toml", _SHARED_DATA)["releases"]
    latest = max(map(_number, releases))
    last_of_12 = max((release for release in releases if release.startswith("12.")), key=_number)
    lines = [f'#define LAST_OF_12 "{last_of_12}"']
    lines += [f"#define LATEST_KNOWN RELEASE({latest // 1000}, {latest % 1000 // 10})"]
    lines += ["static const struct release { int version; const char *nvjitlink; int ptx_isa; } releases[]"]
    lines += ["__attribute__((unused)) = {"]
    for release, known in releases.items():
        major, minor = known["ptx-isa"]
        lines.append(f'  {{{_number(release)}, "{known.get("stand-in", release)}", {major * 10 + minor}}},')
    return "\n".join([*lines, "  {0, NULL, 0},", "};", ""])


def _architectures() -> str:
    """architectures.inc: the default and first architectures, and the targets of CUjit_target."""
    table = _read("architectures.toml", _SHARED_DATA)
    known: dict[str, dict[str, Any]] = table["architectures"]
    oldest = min((one["since"] for one in known.values()), key=_number)
    devices = _read("devices.toml")
    default = devices["devices"][devices["default"]]["arch"]
    lines = ["enum {", f"  DEFAULT_ARCH = {default},"]
    lines += [f"  FIRST_ARCH_OF_13 = {min(int(number) for number, one in known.items() if 'dropped' not in one)},"]
    lines += [
        f"  FIRST_SPECIFIC_ARCH = {min(int(number) for number, one in known.items() if 'suffixes' in one)},",
        "};",
    ]
    lines += ["static const struct target { int number, since, dropped, renamed; bool specific, family; } targets[]"]
    lines += ["__attribute__((unused)) = {"]
    for number, one in known.items():
        # what the oldest known release has, every driver has
        since = 0 if one["since"] == oldest else _number(one["since"])
        dropped = _number(one["dropped"]) if "renamed" in one else 0
        letters = ", ".join("true" if letter in one.get("suffixes", "") else "false" for letter in "af")
        lines.append(f"  {{{number}, {since}, {dropped}, {one.get('renamed', 0)}, {letters}}},")
    without_code = ", ".join(map(str, table["targets-without-code"]))
    lines += ["};", f"static const int targets_without_code[] __attribute__((unused)) = {{{without_code}}};", ""]
    return "\n".join(lines)


def _names() -> str:
    """names.inc: symbols, their weak forms, their addresses, the table of cuGetProcAddress, and names for linkers."""
    table = _read("functions.toml")
    functions: dict[str, dict[str, Any]] = table["functions"]
    since: dict[str, int] = {}
    rows = []
    streams: dict[str, str] = {}
    for name, forms in sorted(functions.items()):
        plain = [
            (version, name if number == 1 else f"{name}_v{number}") for number, version in enumerate(forms["plain"], 1)
        ]
        per_thread = []
        for version, suffix in forms["per_thread"]:
            earlier = [symbol for form, symbol in plain if form <= version]
            symbol = earlier[-1] if earlier else name
            per_thread.append((version, symbol + suffix))
            streams[symbol + suffix] = symbol
        for version, symbol in [*plain, *per_thread]:
            since.setdefault(symbol, version)
        forms_of = ", ".join(f"{{{version}, SYM_{symbol}}}" for version, symbol in plain)
        streams_of = ", ".join(f"{{{version}, SYM_{symbol}}}" for version, symbol in per_thread)
        rows.append(f'{{"{name}", {{{forms_of or "{0}"}}}, {{{streams_of or "{0}"}}}}},')
    exported: dict[str, list[str]] = table["symbols"]
    first = {one: release for release, names in exported.items() for one in names}
    symbols = sorted(first)
    debugger: dict[str, dict[str, Any]] = table["debugger"]
    for one in symbols:
        base = one.removesuffix("_ptsz").removesuffix("_ptds")
        if base != one and base in symbols:
            streams.setdefault(one, base)
    twins: dict[str, str] = table["twins"]
    weak = [symbol for symbol in symbols if symbol not in streams and symbol not in twins]
    # those of graphics are not implemented in any form
    old = {
        name for name, forms in functions.items() if _WIDENED in forms["plain"][1:2] and not name.startswith(_GRAPHICS)
    }
    lines = [
        "#ifdef SYMBOL_IDS_ONLY",
        "typedef enum {",
    ]
    lines += [f"  SYM_{symbol}," for symbol in symbols]
    lines += ["  SYMBOL_COUNT", "} Sym;", *_null_checks(symbols), "#endif", "#ifdef WEAK_SYMBOLS"]
    refused: dict[str, list[int]] = {name: [201, 0] for name in old} | table["refused-forms"]
    for symbol in weak:
        code, zeros = refused.get(symbol, (0, 0))
        written = ", ".join(name if at < zeros else "NULL" for at, name in enumerate(("first", "second")))
        answer = f"cl_refused_form(SYM_{symbol}, {code}, {written})" if code else f"cl_unimplemented(SYM_{symbol})"
        parameters = "(unsigned *first, unsigned *second)"
        lines.append(f"EXPORT __attribute__((weak)) CUresult {symbol}{parameters} {{ return {answer}; }}")
    lines += [
        f"extern CUresult {symbol}(void);\nPER_THREAD_FORM({symbol}, {base})"
        for symbol, base in sorted(streams.items())
    ]
    lines += [
        f"extern CUresult {symbol}(void);\nTWIN({symbol}, {symbols.index(symbol)}, {other})"
        for symbol, other in twins.items()
    ]
    lines += [
        f"EXPORT CUresult {one}(void);\nEXPORT CUresult {one}(void) {{ return CUDA_ERROR_NOT_SUPPORTED; }}"
        if "size" not in known
        else f"EXPORT extern char {one}[];\nEXPORT char {one}[{known['size']}] __attribute__((aligned(8)));"
        for one, known in debugger.items()
    ]
    lines += ["#endif", "#ifdef HIDDEN_NAMES"]
    hidden = [*first.items(), *((one, known["since"]) for one, known in debugger.items())]
    oldest = min((release for release in exported if release != "never"), key=_number)
    for name, release in hidden:
        if release != oldest:
            lines.append(f'{{"{name}", {"NEVER_EXPORTED" if release == "never" else _number(release)}}},')
    lines += ["#endif", "#ifdef SYMBOL_TABLE", *_symbol_rows(symbols, since)]
    lines += ["#endif", "#ifdef ADDRESS_TABLE"]
    lines += [f"[SYM_{symbol}] = (void *){symbol}," for symbol in symbols]
    lines += ["#endif", "#ifdef FUNCTION_TABLE", *rows]
    lines += [
        "#endif",
        *_handle_kinds(),
        "#ifdef LINK_NAMES",
        *(f"NAME({one})" for one in symbols if first[one] != "never"),
    ]
    lines += ["#endif", ""]
    return "\n".join(lines)


def _handle_kinds() -> Iterator[str]:
    """The kinds of handles as enumerators, and with their names and types."""
    kinds: dict[str, list[str]] = _read("functions.toml")["handle-kinds"]
    yield from ("#ifdef HANDLE_KIND_NAMES", *(f"{one.upper()}," for one in kinds), "#undef HANDLE_KIND_NAMES", "#endif")
    yield "#ifdef HANDLE_KIND_ROWS"
    yield from (f'[{one.upper()}] = {{"{name}", "{type_}"}},' for one, (name, type_) in kinds.items())
    yield "#endif"


def _synchronization() -> str:
    """synchronization.inc: for whom copies and fillings wait, by the memory that they touch."""
    table = _read("synchronization.toml")
    lines = ["static const unsigned char copy_waits[2][MEMORIES][MEMORIES] = {"]
    lines += [
        f"  [{form.upper()}][MEMORY_{source.upper()}][MEMORY_{target.upper()}] = WAITS_{waits.upper()},"
        for form, source, target, waits in table["copies"]["rows"]
    ]
    lines += ["};", "static const unsigned char fill_waits[2][MEMORIES] = {"]
    lines += [
        f"  [{form.upper()}][MEMORY_{memory.upper()}] = WAITS_{waits.upper()},"
        for form, memory, waits in table["fillings"]["rows"]
    ]
    return "\n".join([*lines, "};", ""])


def _null_checks(symbols: Iterable[str]) -> Iterator[str]:
    """What each function does first: it looks for arguments that are NULL and of which a driver dies."""
    table: dict[str, dict[str, list[Any]]] = _read("functions.toml")["null-pointers"]
    for symbol in symbols:
        checks = (
            f'if ({" && ".join((f"!{name}", *counts))}) call.null = "{name}", call.null_at = {at}'
            for name, (at, *counts) in table.get(symbol, {}).items()
        )
        yield f"#define NULL_CHECKS_{symbol} {'; '.join(checks)}"


def _symbol_rows(symbols: Iterable[str], since: dict[str, int]) -> Iterator[str]:
    """The facts of each symbol."""
    refused = _read("synchronization.toml")["host-functions"]["refused"]
    locks: dict[str, list[str]] = _read("waits.toml")["locks"]
    traits: dict[str, list[str]] = _read("functions.toml")["traits"]
    dead: dict[str, list[str]] = _read("functions.toml")["dead-handles"]
    dead_answers: dict[str, dict[str, int]] = _read("functions.toml")["dead-answers"]
    rows_of: dict[str, list[dict[str, Any]]] = {}
    firsts: dict[str, int] = {}
    for at, (symbol, row) in enumerate(_waiting_calls(), 1):
        rows_of.setdefault(symbol, []).append(row)
        firsts.setdefault(symbol, at)
    for symbol in symbols:
        at_entry = any("given" not in row for row in rows_of.get(symbol, ())) * (1 + ("Synchronize" in symbol))
        held = sum(1 << at for at, calls in enumerate(locks.values()) if symbol in calls)
        facts: dict[str, Any] = {
            "since": since.get(symbol, 0),
            "waits": firsts.get(symbol, 0),
            "at_entry": int(at_entry),
            "held_up": held,
        }
        kinds = [kind for kind, names in dead.items() if any(fnmatchcase(symbol, one) for one in names)]
        facts["dies_of"] = " | ".join(f"1u << {kind.upper()}" for kind in kinds)
        for kind, answers in dead_answers.items():
            for name, answer in answers.items():
                if fnmatchcase(symbol, name):
                    facts |= {"dead_kind": kind.upper(), "dead_answer": answer}
        own = [trait for trait, names in traits.items() if any(fnmatchcase(symbol, one) for one in names)]
        facts |= dict.fromkeys([*["refuses_host_calls"] * (symbol in refused), *own], 1)
        values = "".join(f", .{name} = {value}" for name, value in facts.items() if value)
        yield f'[SYM_{symbol}] = {{.name = "{symbol}"{values}}},'


def _waiting_calls() -> list[tuple[str, dict[str, Any]]]:
    """The calls of data/emulator/waits.toml with their rows, those of one call behind each other."""
    found = [(call, row) for row in _read("waits.toml")["wait"] for call in row["calls"]]
    return sorted(found, key=lambda pair: pair[0])


def _waits() -> str:
    """waits.inc: the calls that wait, with their conditions, and the room in streams."""
    lines = ["static const struct { Sym call; WaitRow row; } waiting_calls[] = {"]
    locks = list(_read("waits.toml")["locks"])
    rows = _read("waits.toml")["wait"]
    for call, row in _waiting_calls():
        given = row.get("given", {})
        members = [f".number = {rows.index(row) + 1}, .waits_for = WAITS_FOR_{row['waits_for'].upper()}"]
        members += [".promised = true"] if row["promised"] and not row.get("may") else []
        # those that synchronize wait inside
        members += [".by_itself = true"] if "Synchronize" in call else []
        members += [".given = true"] if given else []
        members += [f".holds = {sum(1 << locks.index(one) for one in row.get('holds', ()))}"]
        members += [f".{row['loading']} = true"] if "loading" in row else []
        for name in ("memory", "to", "source"):
            if name in given:
                members.append(f".{name} = {' | '.join(f'1 << MEMORY_{one.upper()}' for one in given[name])}")
        members += [f".larger_than = {given['larger_than']}"] if "larger_than" in given else []
        members += [f".has_limit = true, .limit = {given['limit']}"] if "limit" in given else []
        members += [".sync_memops = true"] if "sync_memops" in given else []
        members += [f".has_first = true, .first = {str(given['first']).lower()}"] if "first" in given else []
        lines.append(f"  {{SYM_{call}, {{{', '.join(members)}}}}},")
    rooms = [f"[ROOM_{name.upper()}] = {number}" for name, number in _read("waits.toml")["room"].items()]
    return "\n".join([*lines, "};", f"static const unsigned short rooms[] = {{{', '.join(rooms)}}};", ""])


def _images() -> str:
    """images.inc: the ELF formats of cubins that drivers know."""
    lines = ["static const struct elf_format { int osabi, since, from_arch; } elf_formats[] = {"]
    known: list[dict[str, Any]] = _read("images.toml")["elf"]
    lines += [f"  {{{one['osabi']}, {_number(one['since'])}, {one['from-arch']}}}," for one in known]
    return "\n".join([*lines, "};", ""])


def _device_functions() -> str:
    """device_functions.inc: the functions that the driver provides to device code."""
    releases: dict[str, list[str]] = _read("device_functions.toml")["functions"]
    lines = ["static const struct device_function { const char *name; int since; } device_functions[] = {"]
    lines += [f'  {{"{name}", {_number(release)}}},' for release, names in releases.items() for name in names]
    return "\n".join([*lines, "};", ""])


def _enums() -> str:
    """enums.inc: cuda.h's enumerators by their own names, for every file of the driver."""
    lines = [
        "#ifndef CUDALINK_ENUMS",
        "#define CUDALINK_ENUMS",
    ]
    for type_, names in _read("enums.toml").items():
        lines += [f"enum {{ /* {type_} */", *(f"  {name} = {number}," for name, number in names.items()), "};"]
    return "\n".join([*lines, "#endif", ""])


def _array_formats() -> str:
    """array_formats.inc: the formats of arrays."""
    table = _read("array_formats.toml")
    rows = [(names, f"{size}, {channels}, false, 0, 0, 0") for size, channels, *names in table["pixels"]]
    rows += [(names, f"{size}, {channels}, true, 0, 0, 0") for size, channels, *names in table["blocks"]]
    rows += [(names, f"{size}, 3, false, {planes}, {x}, {y}") for size, planes, x, y, *names in table["planes"]]
    lines = [f"  {{CU_AD_FORMAT_{name}, {values}}}," for names, values in rows for name in names]
    return "\n".join(["static const Format formats[] = {", *lines, "};", ""])


def _option_names() -> str:
    """option_names.inc: the names of the options of just-in-time compilation, by their numbers."""
    names = ", ".join(f'[{number}] = "{name}"' for name, number in _read("enums.toml")["CUjit_option"].items())
    return f"static const char *const option_names[] = {{{names}}};\n"


def _errors() -> str:
    table = _read("errors.toml")
    lines = ["static const struct driver_error { int code; const char *name, *text; int since; } driver_errors[]"]
    lines += ["__attribute__((unused)) = {"]
    for code, name, text, *since in table["errors"]:
        lines.append(f'{{{code}, "{name}", {json.dumps(text)}, {since[0] if since else 0}}},')
    lines += ["};", "static const struct nvml_error { int code; const char *text; } nvml_errors[]"]
    lines += ["__attribute__((unused)) = {"]
    lines += [f"{{{code}, {json.dumps(text)}}}," for code, text in table["nvml"]]
    return "\n".join([*lines, "};", ""])


def _devices() -> str:
    table = _read("devices.toml")
    base: dict[str, tuple[int, int]] = table["base"]
    lines = ["#include <stddef.h>"]
    lines += ["struct attribute { int number, value; };"]
    lines += ["static const struct attribute base_attributes[] __attribute__((unused)) = {"]
    lines += [f"  {{{number}, {value}}}," for number, value in base.values()]
    lines += ["  {0, 0},", "};"]
    profiles = []
    for key, device in table["devices"].items():
        own = {name: value for name, value in device.items() if name not in ("arch", "name", "memory")}
        array = f"attributes_{key.replace('-', '_')}"
        lines += [f"static const struct attribute {array}[] __attribute__((unused)) = {{"]
        lines += [f"  {{{base[name][0]}, {value}}}," for name, value in own.items()]
        lines += ["  {0, 0},", "};"]
        row = f'  {{"{key}", {device["arch"]}, "{device["name"]}", {device["memory"]}u, {array}}},'
        profiles.append((key != table["default"], row))
    lines += ["struct device_profile {", "  const char *key; int arch; const char *name; size_t memory;"]
    lines += ["  const struct attribute *attributes;", "};"]
    lines += ["static const struct device_profile device_profiles[] __attribute__((unused)) = {"]
    # the first profile is the one that an unknown device gets
    rows = [row for _, row in sorted(profiles, key=lambda profile: profile[0])]
    return "\n".join([*lines, *rows, "};", ""])


def _occupancy() -> str:
    """occupancy.inc: how a multiprocessor shares out what it has, by architecture."""
    table = _read("occupancy.toml")
    lines = ["enum {"]
    lines += [f"  REGISTER_UNIT = {table['register-unit']},", f"  REGISTER_PARTS = {table['register-parts']},", "};"]
    lines += [
        "static const struct sharing {",
        "  int arch, shared_unit, least_sms, sms_unit, cluster_groups[16], carve_outs[16];",
    ]
    lines += ["} sharings[] = {"]
    sharings = {int(arch.removeprefix("sm_")): one for arch, one in table["architectures"].items()}
    for arch, one in sorted(sharings.items()):
        numbers = (arch, one["shared-unit"], one["least-sms"], one["sms-unit"])
        sizes = ", ".join(map(str, [*one["carve-outs"], -1]))
        groups = ", ".join(map(str, [*one.get("cluster-groups", []), 0]))
        lines.append(f"  {{{', '.join(map(str, numbers))}, {{{groups}}}, {{{sizes}}}}},")
    return "\n".join([*lines, "};", ""])


class _NvmlFunction(NamedTuple):
    """A function of NVML: the versions that introduced and that dropped it (0: none did), and its parameters."""

    since: int
    until: int
    parameters: str

    def define(self, name: str, body: Iterable[str], *, optional: int = 0, weak: bool = False) -> list[str]:
        """Return the definition, which checks the device and the pointers, except for the last optional ones."""
        types = {"d": "Device device", "p": "uint32_t *out_{}", "i": "uint64_t in_{}"}
        parameters = [types[kind].format(at) for at, kind in enumerate(self.parameters)]
        outs = [f"out_{at}" for at, kind in enumerate(self.parameters) if kind == "p"]
        needed = outs[: len(outs) - optional]
        present = " && ".join(needed) or "true"
        check = f"CHECK(device, {present});" if self.parameters.startswith("d") else f"READY({present});"
        unused = [f"(void)in_{at};" for at, kind in enumerate(self.parameters) if kind == "i"]
        unused += [f"(void){out};" for out in outs[len(needed) :]]
        mark = "__attribute__((weak)) " if weak else ""
        head = f"EXPORT {mark}Result {name}({', '.join(parameters) or 'void'}) {{"
        return [head, *(f"  {line}" for line in (check, *unused, *body)), "}"]


def _nvml_functions() -> dict[str, _NvmlFunction]:
    functions: dict[str, list[str]] = _read("nvml_names.toml")["functions"]
    return {
        name: _NvmlFunction(_number(since), _number(until[0]) if until else 0, parameters)
        for name, (since, parameters, *until) in functions.items()
    }


def _nvml_answers() -> str:
    """nvml_answers.inc: functions that the data answer, weak forms of all others, and names that versions lack."""
    table = _read("nvml.toml")
    functions = _nvml_functions()
    lines = [
        "#ifdef VALUES",
    ]
    for name, values in table["values"].items():
        outs = [f"out_{at}" for at, kind in enumerate(functions[name].parameters) if kind == "p"]
        body = [
            f"memcpy({out}, (const uint32_t[]){{{', '.join(map(str, words))}}}, {4 * len(words)});"
            for out, words in zip(outs, values, strict=False)
        ]
        lines += functions[name].define(name, [*body, "return SUCCESS;"], optional=len(outs) - len(values))
    lines += ["#endif", "#ifdef STRUCTURES"]
    for name, structure in table["structures"].items():
        out = f"out_{functions[name].parameters.index('p')}"
        body = []
        for size, number in structure["versions"]:
            words = ", ".join(map(str, structure.get("words", ())))
            write = f"memcpy({out} + 1, (const uint32_t[{size // 4 - 1}]){{{words}}}, {size - 4}); " if words else ""
            body.append(f"if (cl_nvml_is_version({out}, {size}, {number})) {{")
            body.append(f"  {write}return {structure.get('result', 0)};")
            body.append("}")
        lines += functions[name].define(name, [*body, "return ARGUMENT_VERSION_MISMATCH;"])
    lines += ["#endif", "#ifdef WEAK_NAMES"]
    results = {name: result for result, names in table["results"].items() for name in names}
    for name in sorted(functions.keys() - table["values"].keys() - table["structures"].keys()):
        pointers = functions[name].parameters.count("p")
        # of several pointers one is mostly an array that may be NULL, and 580.159.04 refuses before it looks at them
        optional = pointers if pointers > 1 else 0
        lines += functions[name].define(name, [f"return {results.get(name, 3)};"], optional=optional, weak=True)
    lines += ["#endif", "#ifdef HIDDEN_NAMES"]
    oldest = min(one.since for one in functions.values())
    lines += [f'{{"{name}", {one.since}}},' for name, one in functions.items() if one.since > oldest]
    lines += ["#endif", "#ifdef DROPPED_NAMES"]
    lines += [f'{{{one.until}, {{"{name}", NEVER_EXPORTED}}}},' for name, one in functions.items() if one.until]
    return "\n".join([*lines, "#endif", ""])


def _nvml_fields() -> str:
    """nvml_fields.inc: the values that NVML answers by number."""
    table = _read("nvml.toml")["fields"]
    lines = [
        f"enum {{ LAST_FIELD = {table['last']} }};",
    ]
    lines += ["static const struct { uint32_t field, type; int32_t value; } fields[] = {"]
    lines += [f"  {{{number}, {kind}, {value}}}," for number, kind, value in table["values"]]
    return "\n".join([*lines, "};", ""])


def _nvml_cards() -> str:
    """nvml_cards.inc: what only NVML shows of a card."""
    lines = ["static const Card cards[] = {"]
    for card in _read("nvml.toml")["cards"]:
        powers = f"{card['power'] * 1000}, {card['least_power'] * 1000}"
        mig = "true" if card.get("mig") else "false"
        lines.append(f'  {{"{card["name"]}", {powers}, {card.get("brand", 14)}, {card.get("fans", 0)}, {mig}}},')
    return "\n".join([*lines, "};", ""])


def generate(folder: Path) -> None:
    """Write the generated sources into a folder; a file that would not change is left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {
        "names": _names,
        "enums": _enums,
        "option_names": _option_names,
        "array_formats": _array_formats,
        "errors": _errors,
        "devices": _devices,
        "images": _images,
        "synchronization": _synchronization,
        "waits": _waits,
        "device_functions": _device_functions,
        "occupancy": _occupancy,
        "limits": _limits,
        "releases": _releases,
        "architectures": _architectures,
        "nvml_answers": _nvml_answers,
        "nvml_fields": _nvml_fields,
        "nvml_cards": _nvml_cards,
    }
    for name, make in parts.items():
        file, text = folder / f"{name}.inc", f"/* Made by native_build/driver.py from what lies in data/. */\n{make()}"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def libraries(cc: Any) -> list[Any]:
    """Return the libraries in the order in which they must be built; `cc` is the module `base.compiler`."""
    generate(GENERATED)
    include = (NATIVE, GENERATED, READER, SHARED)
    threads = ("-pthread", "-ldl")
    # both look themselves up in this table, as the loader does
    hashed = (*threads, "-Wl,--hash-style=gnu")
    nvml = tuple(NATIVE / f"{name}.c" for floor in NVML_FLOORS for name in floor)
    silent = (*hashed, "-DSILENT_CONFIG")
    driver = (*READER_SOURCES, *(NATIVE / f"{name}.c" for floor in FLOORS for name in floor))
    return [
        cc.SharedLibrary(
            "libcuda.so.1",
            (*driver, *WORKER_CLIENT, *_COMMON, SHARED / "safe_memory.c"),
            include,
            hashed,
        ),
        cc.SharedLibrary("libnvidia-ml.so.1", (*nvml, *_COMMON), include, silent),
        cc.SharedLibrary(
            "libcuda.so",
            (NATIVE / "alias.c",),
            include,
            ("{output}/libcuda.so.1", "-Wl,-rpath,$ORIGIN"),
        ),
        *(
            cc.SharedLibrary(f"absent/{name}", (NATIVE / "absent.c",), include)
            for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1")
        ),
    ]

"""Words, limits and tables that several parts share. Written by ``tools/make_names.py`` from data files: do not edit.

Imports nothing else of the project, because the start of every pytest reads it.
"""

from typing import Literal

BACKENDS: tuple[str, ...] = ("driver", "nvjitlink")
MARKER_BACKENDS: tuple[str, ...] = ("driver", "nvjitlink", "each")
BACKEND_CHOICES: tuple[str, ...] = ("auto", "driver", "nvjitlink", "each")
DRIVER_WORDS: tuple[str, ...] = ("auto", "real", "absent")
NVJITLINK_WORDS: tuple[str, ...] = ("auto", "absent")
CHECK_MODES: tuple[str, ...] = ("off", "report", "fail", "strict")
GUARD_RAIL_MODES: tuple[str, ...] = ("off", "best_effort", "strict", "warning_only")
GuardRailMode = Literal["off", "best_effort", "strict", "warning_only"]
TOOLCHAIN_MODES: tuple[str, ...] = ("auto", "cached", "never")
#: Tables of matrices/dispatch.toml.
POLICIES: tuple[str, ...] = ("strict-major", "newer-driver-ok", "released")
DEFAULT_POLICY = "strict-major"
#: Devices that an emulated driver can have, and the architecture of each.
EMULATED_DEVICES = {
    "v100": "sm_70",
    "t4": "sm_75",
    "rtx-2080-ti": "sm_75",
    "a100": "sm_80",
    "a10": "sm_86",
    "rtx-3090": "sm_86",
    "l4": "sm_89",
    "rtx-4090": "sm_89",
    "h200": "sm_90",
    "h100": "sm_90",
    "b200": "sm_100",
    "rtx-5090": "sm_120",
}
EMULATED_ARCHITECTURES: tuple[str, ...] = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
DEFAULT_ARCHITECTURE = "sm_90"
LIMIT_DEVICES = 64
LIMIT_LEAST_DEVICE_MEMORY = 16_777_216
LIMIT_FAULTS = 64
LIMIT_SWEPT_CALLS = 16_384
LIMIT_DELAY = 86_400_000
LIMIT_EVENT_SIZE = 2048
LIMIT_EVENTS_KEPT = 16_384
LIMIT_GATE_SECONDS = 60
LIMIT_LINK_TIMEOUT = 60
LIMIT_LINK_SECONDS = 86_400
#: Number, first release, first release without it, suffixes.
ARCHITECTURES: tuple[tuple[int, tuple[int, int], tuple[int, int] | None, str], ...] = (
    (50, (12, 0), (13, 0), ""),
    (52, (12, 0), (13, 0), ""),
    (53, (12, 0), (13, 0), ""),
    (60, (12, 0), (13, 0), ""),
    (61, (12, 0), (13, 0), ""),
    (62, (12, 0), (13, 0), ""),
    (70, (12, 0), (13, 0), ""),
    (72, (12, 0), (13, 0), ""),
    (75, (12, 0), None, ""),
    (80, (12, 0), None, ""),
    (86, (12, 0), None, ""),
    (87, (12, 0), None, ""),
    (88, (13, 0), None, ""),
    (89, (12, 0), None, ""),
    (90, (12, 0), None, "a"),
    (100, (12, 8), None, "af"),
    (101, (12, 8), (13, 0), "af"),
    (103, (12, 9), None, "af"),
    (107, (13, 4), None, "af"),
    (110, (13, 0), None, "af"),
    (120, (12, 8), None, "af"),
    (121, (12, 9), None, "af"),
)
FAMILY_SUFFIX_SINCE: tuple[int, int] = (12, 9)
#: Release, driver release, PTX ISA, NVVM IR, the release that stands in for it.
RELEASES: tuple[tuple[tuple[int, int], str, tuple[int, int], tuple[int, int] | None, tuple[int, int] | None], ...] = (
    ((12, 0), "525.60.13", (8, 0), (2, 51), None),
    ((12, 1), "530.30.02", (8, 1), (2, 53), None),
    ((12, 2), "535.54.03", (8, 2), (2, 58), None),
    ((12, 3), "545.23.06", (8, 3), (2, 63), None),
    ((12, 4), "550.54.14", (8, 4), (2, 71), None),
    ((12, 5), "555.42.02", (8, 5), (2, 83), None),
    ((12, 6), "560.28.03", (8, 5), (2, 84), None),
    ((12, 7), "565.57.01", (8, 6), None, (12, 8)),
    ((12, 8), "570.26", (8, 7), (2, 89), None),
    ((12, 9), "575.51.03", (8, 8), (2, 93), None),
    ((13, 0), "580.65.06", (9, 0), (2, 98), None),
    ((13, 1), "590.44.01", (9, 1), (2, 107), None),
    ((13, 2), "595.58.03", (9, 2), (2, 114), None),
    ((13, 3), "610.43.02", (9, 3), (2, 115), None),
    ((13, 4), "615.31", (9, 4), (2, 120), None),
    ((13, 5), "620.10.01", (9, 5), (2, 131), None),
)
DRIVER_BRANCH_FLOOR = {11: 450, 12: 525, 13: 580}

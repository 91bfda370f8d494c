"""What is known of CUDA releases and architectures, as data that any project can import.

`exports` says what each library exports in which release, `known_bad` which combinations of versions fail, `releases`
and `architectures` what each release reads, writes and compiles for. `atlas` has what was measured of links across
releases, and `documented` what NVIDIA says of them. ``matrices/compat.json`` has the rest for other
languages. A function is imported with its module when it is first used.

`data/` holds the facts. ``tools/make_names.py`` writes `names` from them, and ``emulator/driver_sources.py`` the
headers of the C.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .architectures import known_architectures
    from .known_bad import KnownBad
    from .known_bad import entries as known_bad_entries
    from .known_bad import known_bad as known_bad_of
    from .releases import ptx_isa_of

__all__ = ["KnownBad", "known_architectures", "known_bad_entries", "known_bad_of", "ptx_isa_of"]

_WHERE: Final = {
    "KnownBad": ("known_bad", "KnownBad"),
    "known_architectures": ("architectures", "known_architectures"),
    "known_bad_entries": ("known_bad", "entries"),
    "known_bad_of": ("known_bad", "known_bad"),
    "ptx_isa_of": ("releases", "ptx_isa_of"),
}


def __getattr__(name: str) -> Any:
    """Import a function with its module when it is first used."""
    if name not in _WHERE:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    module, attribute = _WHERE[name]
    return getattr(import_module(f"{__name__}.{module}"), attribute)

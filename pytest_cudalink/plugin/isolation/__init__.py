"""Tests in separate processes: the parent, the child, and the processes between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..run import Key

if TYPE_CHECKING:
    from .parent import Isolation
    from .processes import Copies, Servers

COPIES: Final[Key[Copies]] = Key("isolation.processes:Copies")
ISOLATION: Final[Key[Isolation]] = Key("isolation.parent:Isolation")
SERVERS: Final[Key[Servers]] = Key("isolation.processes:Servers")

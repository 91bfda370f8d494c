"""How much the audit of one wheel may cost, whatever the wheel says."""

import math
import time
from typing import Final

#: The largest wheels of PyPI have 20,000 members, become 5 times larger, and take two minutes.
MOST_ENTRIES: Final = 100_000
LEAST_BYTES: Final = 1 << 30
MOST_RATIO: Final = 20
MOST_SECONDS: Final = 600.0


class AuditError(ValueError):
    """Nothing at the path can be audited; says what was found."""


class Budget:
    """The entries, bytes and seconds that the audit of one wheel has; a folder or a library has no bounds.

    The seconds are those of the processor, so that neither a busy machine nor a slow network counts.

    `name`: of the wheel, for messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._most = self._left = math.inf
        self._until = math.inf

    def open(self, size: int, entries: int) -> None:
        """Begin with a wheel of a size and a number of entries in its directory.

        Raises AuditError if it has too many entries.
        """
        self._most = self._left = max(LEAST_BYTES, MOST_RATIO * size)
        self._until = time.process_time() + MOST_SECONDS
        if entries > MOST_ENTRIES:
            self._refuse(f"has {entries} entries; expected at most {MOST_ENTRIES}")

    def spend(self, size: int = 0) -> None:
        """Count bytes that are unpacked, and look at the clock.

        Raises AuditError if there are too many, or the time is over.
        """
        self._left -= size
        if self._left < 0:
            self._refuse(f"would become larger than {self._most} bytes")
        if time.process_time() > self._until:
            self._refuse(f"takes more than {MOST_SECONDS:.0f} seconds of processor time")

    def _refuse(self, text: str) -> None:
        raise AuditError(f"{self._name}: {text}: unpack it, and audit the folder")

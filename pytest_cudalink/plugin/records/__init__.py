"""What is written down: facts of tests, sums of the run, and the record file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..run import Key

if TYPE_CHECKING:
    from .ledger import Ledger
    from .record_file import RecordFile
    from .results import Results

LEDGER: Final[Key[Ledger]] = Key("records.ledger:Ledger")
RECORD_FILE: Final[Key[RecordFile]] = Key("records.record_file:RecordFile")
RESULTS: Final[Key[Results]] = Key("records.results:Results")

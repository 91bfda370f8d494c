"""What a program of a stage hands to the runner: counts, reasons and tables, as one line of JSON."""

import json
from dataclasses import asdict, dataclass, field


@dataclass
class Table:
    """Rows of figures or answers for the page."""

    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)

    def row(self, *cells: object) -> None:
        self.rows.append([str(cell) for cell in cells])


@dataclass
class Result:
    """What passed, failed and was skipped."""

    passed: int = 0
    failures: list[str] = field(default_factory=list)  # a sentence for each thing that failed
    skipped: list[list[str]] = field(default_factory=list)  # what did not run, and why
    tables: list[Table] = field(default_factory=list)

    def table(self, title: str, *columns: str) -> Table:
        self.tables.append(Table(title, list(columns)))
        return self.tables[-1]

    def check(self, sentence: str, *, holds: bool) -> None:
        """Count something that must hold; `sentence` says what is wrong otherwise."""
        if holds:
            self.passed += 1
        else:
            self.failures.append(sentence)

    def skip(self, check: str, why: str) -> None:
        """Name something that cannot run here."""
        self.skipped.append([check, why])

    def write(self) -> None:
        """Print the result as the last line of stdout."""
        print(json.dumps(asdict(self)))

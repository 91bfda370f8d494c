"""Print every attempt of a record."""

import sys

from pytest_cudalink.report import records

for attempt in records.read(sys.argv[1]).tests:
    code = attempt.reason.partition("failed: ")[2].partition(" ")[0]
    print(f"attempt {attempt.attempt}: {attempt.outcome}, links on {attempt.backends}" + (f": {code}" if code else ""))

"""What ``cudalink doctor`` says on this machine: ``python -m campaigns.hardware.doctor``."""

import sys

from campaigns.hardware.result import Result
from pytest_cudalink import doctor
from pytest_cudalink.cli.doctor import page


def main() -> int:
    """Print the result: the environment must be coherent, and the driver the one of this machine."""
    result = Result()
    report = doctor.examine()
    result.check(f"the exit code is {report.exit_code}; expected 0: coherent", holds=report.exit_code == 0)
    kind = report.driver["kind"]
    result.check(f"the driver is {kind!r}; expected 'real'", holds=kind == "real")
    lines = result.table("`cudalink doctor`", "line")
    for line, _colour in page(report):
        if line.strip():
            lines.row(line.strip())
    result.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What ``cudalink doctor`` says on this machine: ``python -m campaigns.hardware.doctor``."""

from campaigns.hardware.result import Result
from pytest_cudalink import doctor
from pytest_cudalink.cli.doctor import page


def examined() -> Result:
    """The environment must be coherent, and the driver the one of this machine."""
    result, report = Result(), doctor.examine()
    result.check(f"the exit code is {report.exit_code}; expected 0: coherent", holds=report.exit_code == 0)
    kind = report.driver["kind"]
    result.check(f"the driver is {kind!r}; expected 'real'", holds=kind == "real")
    lines = result.table("`cudalink doctor`", "line")
    for line in filter(None, (line.strip() for line, _colour in page(report))):
        lines.row(line)
    return result


if __name__ == "__main__":
    examined().write()

"""Run the reproducer of each finding with every release that ``findings.toml`` lists, in an environment for each.

``python -m campaigns.findings.releases [--wheel FILE] [ID ...]`` prints one line for each release, and fails if a
release listed as bad does not show the fault, or one listed as good does. `nox -s finding-releases` runs it.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.version import Version

from campaigns.findings import catalog
from tests import sessions


def printed_by(finding: catalog.Finding, packages: tuple[str, ...], release: str, wheel: str | None) -> str:
    """What the reproducer prints in a new environment with a release."""
    with tempfile.TemporaryDirectory() as name:
        environment = Path(name) / "environment"
        given = [package.replace("{}", release) for package in packages] + ([wheel] if wheel else [])
        python = environment / "bin" / "python"
        subprocess.run(["uv", "venv", "-q", "--python", sys.executable, environment], check=True)
        subprocess.run(["uv", "pip", "install", "-q", "--python", python, *given], check=True)
        folder = sessions.copy_of(catalog.EXAMPLES / finding.id, Path(name) / "project")
        return sessions.in_environment(environment, finding.command.replace("{}", release), folder)


def main() -> int:
    """Run what the command line names; the exit code is 1 if a release is not what its list says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", help="this project's wheel, which commands such as pytest need")
    parser.add_argument("--show", action="store_true", help="print what each release prints")
    parser.add_argument("findings", nargs="*", metavar="ID")
    options = parser.parse_args()
    wrong = 0
    for finding in catalog.read():
        if options.findings and finding.id not in options.findings:
            continue
        for runs in finding.runs:
            for release in sorted((*runs.bad, *runs.good), key=Version):
                printed = printed_by(finding, runs.packages, release, options.wheel)
                shows = bool(re.search(finding.shows, printed, re.MULTILINE))
                agrees = shows == (release in runs.bad)
                wrong += not agrees
                verdict = "bad" if shows else "good"
                print(f"{finding.id}: {finding.library} {release}: {verdict}{'' if agrees else ', listed otherwise'}")
                if options.show or not agrees:
                    print(printed)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

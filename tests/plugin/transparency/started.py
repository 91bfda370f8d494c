"""The conftest of a run: it changes what conftests of projects change, and notes what pytest reports."""

import os
import random
import sys

sys.path.insert(0, "one-more")
os.environ["LENGTHENED"] = os.environ.get("LENGTHENED", "") + "x"
os.environ["PATH"] += os.pathsep + "/nowhere"
random.seed(7)


def pytest_runtest_logreport(report):
    from test_programs import note

    shown = [(title, text) for title, text in report.sections if not title.startswith("Captured log")]
    crash = getattr(getattr(report.longrepr, "reprcrash", None), "message", None)
    answer = [report.outcome, crash, shown, getattr(report, "wasxfail", None), sorted(report.keywords), report.location]
    note(report.nodeid, report.when, answer)

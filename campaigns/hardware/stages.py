"""What runs on a machine with a real driver: the stages, as data.

A stage runs tests, or a program of this folder that prints a `Result` as JSON, or a benchmark. The runner is in
``__main__.py``; a stage that runs nothing counts as failed.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One stage."""

    name: str  # as `--stage` takes it
    title: str  # what it shows, as the heading of its section
    kind: str  # "tests", "program" or "benchmark"
    words: str  # files of tests; or a module and its arguments; or the file of a benchmark and its options
    seconds: int = 240  # limit; the stage fails if it takes longer

    @property
    def command(self) -> str:
        """The command that repeats the stage, as a page shows it."""
        start = {"tests": "pytest", "program": "python -m", "benchmark": "python"}[self.kind]
        return f"{start} {self.words}"


STAGES = (
    Stage("dispatch", "Which backend is chosen, and why", "program", "campaigns.hardware.samples dispatch"),
    Stage("numbers", "The sample's numbers against NumPy", "program", "campaigns.hardware.samples numbers"),
    Stage(
        "links",
        "Both backends link, and links on guard pages",
        "tests",
        "tests/driver/test_driver_backend.py tests/driver/test_gpu.py tests/toolkit/test_nvjitlink.py",
    ),
    Stage("touches", "When the driver touches the caller's memory", "program", "campaigns.hardware.touches"),
    Stage("conformance", "Recorded cases of the driver's linker", "program", "campaigns.hardware.recordings cases"),
    Stage(
        "programs",
        "Random programs on the driver API",
        "program",
        "campaigns.hardware.recordings programs --seconds=40",
    ),
    Stage("fatbins", "Which entry of a fatbin is taken", "program", "campaigns.hardware.recordings fatbins"),
    Stage("occupancy", "Occupancy", "program", "campaigns.hardware.recordings occupancy"),
    Stage("order", "What host functions may call", "program", "campaigns.hardware.recordings order"),
    Stage("waits", "Which calls wait", "program", "campaigns.hardware.recordings waits --seconds=240", 300),
    Stage("devices", "Which devices a process sees, and peers", "tests", "tests/driver/test_devices_gpu.py"),
    Stage("stubs", "Stubs in front of the real libraries", "tests", "tests/driver/test_stubs_gpu.py"),
    Stage("guard-rails", "Guard rails on this driver", "tests", "tests/driver/test_guardrails_gpu.py"),
    Stage("doctor", "What `cudalink doctor` says", "program", "campaigns.hardware.doctor"),
    Stage("sticky", "Errors that stay", "tests", "tests/driver/test_sticky_gpu.py"),
    Stage("no-wait", "Hidden waits, found by closed gates", "program", "campaigns.hardware.no_wait"),
    Stage("bench-linker", "Speed of links", "benchmark", "benchmarks/linker.py --rounds=15"),
    Stage("bench-sticky", "Cost of the guard", "benchmark", "benchmarks/sticky.py --rounds=3"),
)

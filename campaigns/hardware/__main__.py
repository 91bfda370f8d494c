"""Run the stages on this machine's driver: ``python -m campaigns.hardware``, or ``nox -s gpu``.

It needs a real driver with a device, this project with a CUDA toolkit, and the packages of ``tools/bundle.toml``.
Exit code 0: every stage that was asked for passed; 1: one of them failed or did not run; 2: there is no driver, or an
option is invalid.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

# the checkout goes last: its package may not be built, and that of the environment is what is measured
sys.path.sort(key=lambda place: Path(place).resolve() == Path(__file__).parents[2])

from campaigns.hardware import pages
from campaigns.hardware.facts import machine_facts
from campaigns.hardware.runner import run_stage
from campaigns.hardware.stages import STAGES
from pytest_cudalink.emulator.preload import driver_exists


def main(arguments: list[str] | None = None) -> int:
    """Run stages, write the results, and return the exit code."""
    about = (__doc__ or "").partition("\n\n")[0]
    parser = argparse.ArgumentParser(prog="python -m campaigns.hardware", description=about)
    names = [stage.name for stage in STAGES]
    parser.add_argument("--out", type=Path, default=pages.FOLDER, help="folder of the JSON file")
    parser.add_argument("--stage", action="append", choices=names, help="run only this stage; repeat it")
    parser.add_argument("--list", action="store_true", help="list the stages")
    options = parser.parse_args(arguments)
    if options.list:
        for stage in STAGES:
            print(f"{stage.name:14}{stage.title}\n{'':14}{stage.command}")
        return 0
    if not driver_exists():
        sys.stderr.write(
            "nox -s gpu: libcuda.so.1 is missing; expected an NVIDIA driver with a device; run it on a machine with a "
            "GPU (the stages have no meaning on an emulated driver)\n"
        )
        return 2
    facts = machine_facts()
    if facts["device"]["arch"] is None:
        sys.stderr.write("nox -s gpu: the driver shows no device; expected at least one; nvidia-smi says more\n")
        return 2
    stages: list[dict[str, Any]] = []
    content = {"format": 1, "facts": facts, "stages": stages}
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / f"{pages.file_name(content)}.json"
    for stage in STAGES:
        if options.stage and stage.name not in options.stage:
            continue
        result = run_stage(stage)
        stages.append(result)
        counts = f"{result['passed']} passed, {len(result['failures'])} failed, {len(result['skipped'])} skipped"
        print(f"{result['outcome']:8} {stage.name:14} {result['seconds']:6.1f} s  {counts}", flush=True)
        for failure in result["failures"][:5]:
            print("    " + failure[:600].replace("\n", "\n    "), flush=True)
        for what, why in result["skipped"]:
            print(f"    skipped: {what}: {why}", flush=True)
        # after every stage: a run that is stopped keeps what it has
        file.write_text(json.dumps(pages.completed(content), indent=1) + "\n", encoding="utf-8")
    content = pages.completed(content)
    pages.check(content)
    print(f"results in {file}")
    return 0 if all(stage["outcome"] == "passed" for stage in stages) else 1


if __name__ == "__main__":
    sys.exit(main())

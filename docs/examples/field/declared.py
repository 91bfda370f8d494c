"""Compare one need with the METADATA of wheels on the package index: declared.py LIBRARY RELEASE REQUIREMENT..."""

import sys

from pytest_cudalink.audit.declared import judge_needs, read_requirements
from pytest_cudalink.audit.index import metadata_on_index
from pytest_cudalink.audit.needs import Need
from pytest_cudalink.versions import CudaVersion

library, release, *wheels = sys.argv[1:]
floor = CudaVersion.parse(release)
need = Need("the wheel", library, floor.major, floor, "opened", f"loads {library} of CUDA {floor}", demanded=True)
for wheel in wheels:
    findings = judge_needs([need], read_requirements(metadata_on_index(wheel)))
    print(f"{wheel}:", *[one.kind for one in findings] or ["declared"], *[one.suggestion[0] for one in findings])

"""Which build of a package conda's resolver takes for the driver of this machine: python resolve.py CHANNEL PACKAGE."""

import asyncio
import os
import sys
from pathlib import Path

from rattler import MatchSpec, VirtualPackage, solve


async def main(channel: str, package: str) -> None:
    virtual = [detected.into_generic() for detected in VirtualPackage.detect()]
    versions = [str(generic.version) for generic in virtual if generic.name.normalized == "__cuda"]
    records = await solve([channel], [MatchSpec(package)], platforms=["noarch"], virtual_packages=virtual)
    builds = [f"{record.name.normalized} {record.version} {record.build}" for record in records]
    print(f"__cuda {', '.join(versions) or 'is absent'}: {', '.join(builds)}")


asyncio.run(main(Path(sys.argv[1]).resolve().as_uri(), sys.argv[2]))
sys.stdout.flush()
os._exit(0)  # threads of py-rattler 0.28 crash now and then when Python ends, with a driver and without

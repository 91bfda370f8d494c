"""What commands show while they wait: a line on a terminal, and not a byte in a pipe."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.terminals import on_terminal

#: Stands in for uv: lays out what a wheel has, and takes its time.
_UV = f"""#!{sys.executable}
import pathlib, sys, time
if "-q" not in sys.argv:
    sys.stderr.write("Downloading nvidia-nvjitlink (38.8MiB)\\n")
    sys.stderr.flush()
time.sleep(2.6)
site = pathlib.Path(sys.argv[sys.argv.index("--target") + 1]) / "nvidia" / "cu13" / "lib"
site.mkdir(parents=True)
for name in ("libnvJitLink.so.13", "libnvrtc.so.13", "libcudart.so.13"):
    (site / name).write_bytes(b"")
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An empty cache, and a slow uv first on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    uv = folder / "uv"
    uv.write_text(_UV)
    uv.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {
        **{name: value for name, value in os.environ.items() if name not in ("CI", "COLUMNS")},
        "PATH": path,
        "TERM": "xterm",
        "CUDALINK_CACHE": str(tmp_path / "cache"),
        # the uv of this environment would be taken first
        "SLOW_UV": str(uv),
    }


#: The command, with the uv above in place of the one next to this Python.
_TOOLCHAIN = [
    sys.executable,
    "-c",
    """
import os, sys
from pytest_cudalink.base import progress; from pytest_cudalink import toolchains
from pytest_cudalink.cli import main
progress.DELAY = 0.1
toolchains._installer = lambda _: [os.environ["SLOW_UV"], "-q"]
sys.exit(main())
""",
]


def test_fetching_on_a_terminal(environment: dict[str, str], tmp_path: Path) -> None:
    """The line names the toolchain and what is downloaded, and the result alone remains."""
    seen = on_terminal([*_TOOLCHAIN, "toolchain", "add", "13.0"], environment)
    assert seen.code == 0
    assert re.search(r"\r\x1b\[Kfetching toolchain 13\.0, Downloading nvidia-nvjitlink \(38\.8MiB\), \d s", seen.output)
    assert seen.output.endswith(f"\r\x1b[KCUDA 13.0: {tmp_path / 'cache' / 'toolchains' / '13.0'}\r\n")

"""What commands show while they wait: a line on a terminal, and not a byte in a pipe."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.terminals import on_terminal

#: Stands in for uv: lays out what a wheel has, once there is a file that lets it go on.
_UV = f"""#!{sys.executable}
import os, pathlib, sys, time
if "-q" not in sys.argv:
    sys.stderr.write("Downloading nvidia-nvjitlink (38.8MiB)\\n")
    sys.stderr.flush()
while not os.path.exists(os.environ["SLOW_UV"] + ".go"):
    time.sleep(0.01)
site = pathlib.Path(sys.argv[sys.argv.index("--target") + 1]) / "nvidia" / "cu13" / "lib"
site.mkdir(parents=True)
for name in ("libnvJitLink.so.13", "libnvrtc.so.13", "libcudart.so.13"):
    (site / name).write_bytes(b"")
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An empty cache, and a slow uv."""
    uv = tmp_path / "uv"
    uv.write_text(_UV)
    uv.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "COLUMNS")}
    return {**kept, "TERM": "xterm", "CUDALINK_CACHE": str(tmp_path / "cache"), "SLOW_UV": str(uv)}


#: The command, with the uv above in place of the one next to this Python.
_TOOLCHAIN = """
import os, sys
from pytest_cudalink.base import progress; from pytest_cudalink import toolchains
from pytest_cudalink.cli import main
progress.DELAY = 0.1
toolchains._installer = lambda _: [os.environ["SLOW_UV"], "-q"]
sys.exit(main())
"""


def test_fetching_on_a_terminal(environment: dict[str, str], tmp_path: Path) -> None:
    """The line names the toolchain and what is downloaded, and the result alone remains."""

    def go_on(_terminal: int, output: bytes) -> None:
        if b", Downloading" in output:
            (tmp_path / "uv.go").touch()

    seen = on_terminal([sys.executable, "-c", _TOOLCHAIN, "toolchain", "add", "13.0"], environment, go_on)
    assert seen.code == 0
    assert re.search(r"\r\x1b\[Kfetching toolchain 13\.0, Downloading nvidia-nvjitlink \(38\.8MiB\), \d s", seen.output)
    assert seen.output.endswith(f"\r\x1b[KCUDA 13.0: {tmp_path / 'cache' / 'toolchains' / '13.0'}\r\n")

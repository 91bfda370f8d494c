"""The guard rails in the environment of one toolkit."""

import subprocess
import sys


def test_the_sessions_own_toolkit(toolkit) -> None:
    """Everything of this environment belongs to the toolkit that it was made for."""
    # in a child process: other tests load libraries of other releases
    program = f"""
from pytest_cudalink.guardrails import CompatibilityGuardRails
guard = CompatibilityGuardRails(driver_cuda_version={tuple(toolkit)!r}, ctk_version="=={toolkit}.*")
for name in ("nvrtc", "nvJitLink", "cudart"):
    guard.load_nvidia_dynamic_lib(name)
    guard.find_nvidia_header_directory(name.lower())
print(*(item.version for item in guard.remembered))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(toolkit)] * 6

"""Unpack packages of a Debian release, for any machine, into a folder, through apt; nothing is installed."""

import os
import shutil
import subprocess
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def missing() -> str:
    """Why nothing can be unpacked here; empty if it can."""
    for command in ("apt-get", "dpkg-deb"):
        if not shutil.which(command):
            return f"there is no {command}; run this on Debian"
    if not KEYRING.exists():
        return f"there is no {KEYRING}; install debian-archive-keyring"
    return "" if _mirror() else "apt has no mirror of Debian; run this on Debian, after 'apt-get update'"


def _mirror() -> str:
    """Return the address of Debian that the machine itself uses."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian", "Label: Debian"]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return lines[0] if lines else ""


def unpack(suite: str, machine: str, packages: tuple[str, ...], folder: Path) -> Path:
    """Unpack the newest packages of a release into ``folder/root``, which is returned."""
    root = folder / "root"
    for part in ("lists/partial", "cache/archives/partial", "root"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    sources = folder / "sources.list"
    sources.write_text(f"deb [signed-by={KEYRING}] {_mirror()} {suite} main\n", encoding="utf-8")
    options = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "APT::Architecture": machine,
        "APT::Architectures": machine,
        "APT::Sandbox::User": os.environ.get("USER", "root"),
        "Acquire::Languages": "none",
    }
    apt = ["apt-get", "-qq", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    subprocess.run([*apt, "update"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([*apt, "download", *packages], check=True, cwd=folder / "cache", stdout=subprocess.DEVNULL)
    for package in (folder / "cache").glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(root)], check=True)
    return root

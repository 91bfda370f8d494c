"""Check and install a bundle of ``python -m tools.bundle``; needs nothing but Python and pip, and no network.

It is the file ``unbundle.py`` of every bundle, so that it imports only the standard library::

    python3 unbundle.py                     check the bundle in this folder
    python3 unbundle.py --to FOLDER         join the volumes in this folder into a bundle
    python3 unbundle.py --venv FOLDER       check the bundle, and make an environment from it

Nothing is installed before the sha256 of every file is the one in the manifest.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

FORMAT = 1
MANIFEST = "manifest.json"
#: Describes the volumes of a bundle that was split.
VOLUMES = "volumes.json"
_BLOCK = 1 << 20
#: What reading JSON or an archive raises that is damaged.
_DAMAGE = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)
#: Most files that an error shows.
_MOST_LISTED = 20


class BundleError(RuntimeError):
    """A bundle is damaged or does not fit this machine; the message says what was found, and what to do."""


def sha256(path: Path) -> str:
    """Return the sha256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def check(folder: Path) -> dict[str, Any]:
    """Return the manifest of a bundle's folder, after comparing every file with it.

    Raises BundleError if a file is missing or damaged.
    """
    if not (folder / MANIFEST).is_file() and (folder / VOLUMES).is_file():
        msg = f"{folder} has the volumes of a bundle; expected a joined one; give --to FOLDER, where it will lie"
        raise BundleError(msg)
    manifest = _described(folder / MANIFEST, "files")
    remedy = "copy it again, or make the bundle again with `python -m tools.bundle`"
    _compare(folder, {entry["file"]: entry for entry in manifest["files"]}, remedy)
    return manifest


def _described(path: Path, members: str) -> dict[str, Any]:
    """Return a manifest, or the description of volumes; `members` is the key of its files."""
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        form = content["format"]
        names = [entry["file"] for entry in content[members]] if form == FORMAT else []
    except OSError as error:
        msg = f"{path} is missing or unreadable ({error.strerror}); expected a bundle; copy all of its files"
        raise BundleError(msg) from error
    except _DAMAGE as error:
        msg = f"{path} is damaged ({error!r}); expected JSON that `python -m tools.bundle` wrote; copy the file again"
        raise BundleError(msg) from error
    if form != FORMAT:
        raise BundleError(f"{path} has format {form!r}; expected {FORMAT}; use the unbundle.py that lies next to it")
    for name in names:
        if not _is_inside(name):
            msg = f"{path} names the file {name!r}; expected a path inside of the bundle; do not use this bundle"
            raise BundleError(msg)
    return content


def _is_inside(name: str) -> bool:
    place = PurePosixPath(name)
    return bool(place.parts) and name.isprintable() and not place.is_absolute() and ".." not in place.parts


def _compare(folder: Path, entries: dict[str, dict[str, Any]], remedy: str) -> None:
    """Raise an error that lists the files that are missing or differ from their entries."""
    wrong = []
    for name, entry in entries.items():
        try:
            problem = _difference(folder / name, entry)
        except (OSError, ValueError) as error:  # a name that no file can have
            problem = f"cannot be read ({error})"
        if problem:
            wrong.append(f"{name} {problem}")
    if wrong:
        more = [f"and {len(wrong) - _MOST_LISTED} more"] if len(wrong) > _MOST_LISTED else []
        raise BundleError("\n  ".join([f"the bundle {folder} is damaged; {remedy}:", *wrong[:_MOST_LISTED], *more]))


def _difference(path: Path, entry: dict[str, Any]) -> str:
    """Return what a file has instead of what its entry says; empty if it has that."""
    if path.is_symlink() or not path.is_file():
        return f"is {'a link' if path.is_symlink() else 'missing'}; expected {entry['size']} bytes"
    if (size := path.stat().st_size) != entry["size"]:
        return f"has {size} bytes; expected {entry['size']}"
    if (digest := sha256(path)) != entry["sha256"]:
        return f"has the sha256 {digest}; expected {entry['sha256']}"
    return ""


def unpack(source: Path, folder: Path) -> dict[str, Any]:
    """Unpack a ``.tar``, or the volumes in a folder, into a folder; return the manifest after checking every file.

    Raises BundleError if a volume or a file is missing or damaged, or the folder is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        msg = f"{folder} is not an empty folder; expected a place for the bundle; name another, or remove it"
        raise BundleError(msg)
    if source.is_dir():
        described = _described(source / VOLUMES, "volumes")
        volumes = {entry["file"]: entry for entry in described["volumes"]}
        _compare(source, volumes, "copy these volumes again")
        with tempfile.TemporaryDirectory(dir=folder.absolute().parent if folder.parent.is_dir() else None) as name:
            joined = Path(name) / "bundle.tar"
            with joined.open("wb") as stream:
                for volume in volumes:
                    with (source / volume).open("rb") as part:
                        shutil.copyfileobj(part, stream, _BLOCK)
            if sha256(joined) != described["sha256"]:
                msg = f"the joined volumes of {source} are not the bundle that was split; make the bundle again"
                raise BundleError(msg)
            _extract(joined, folder)
    else:
        _extract(source, folder)
    return check(folder)


def _extract(archive: Path, folder: Path) -> None:
    """Unpack regular files into a folder; refuse everything else."""
    try:
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                if not member.isreg() or member.issparse() or not _is_inside(member.name):
                    msg = f"{archive} has the member {member.name!r}; expected regular files only; do not use it"
                    raise BundleError(msg)
                path = folder / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as stream:
                    content = tar.extractfile(member)
                    assert content is not None
                    shutil.copyfileobj(content, stream, _BLOCK)
    except (OSError, tarfile.TarError, *_DAMAGE) as error:
        msg = f"{archive} cannot be unpacked: {error}; expected a bundle of `python -m tools.bundle`; copy it again"
        raise BundleError(msg) from error


def install(folder: Path, venv: Path, cache: Path | None = None) -> dict[str, Any]:
    """Make an environment from a checked bundle; return what was installed and what the machine's Python gave.

    `folder`: the bundle.
    `venv`: folder of the environment; replaced if it exists.
    `cache`: folder of toolchains that gets the bundle's CUDA releases.
    Raises BundleError if the bundle is damaged or is for another Python or platform, or if the machine lacks a package
    that the bundle leaves to it.
    """
    manifest = check(folder)
    _check_machine(manifest)
    distributions = _of_the_machine(manifest["without"])
    python = str(venv / "bin" / "python")
    _run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(venv)])
    offline = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    offline.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(folder / "wheels"), PIP_CONFIG_FILE=os.devnull)
    _run(
        [
            *(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--disable-pip-version-check"),
            *("--no-deps", "--require-hashes", "-r", str(folder / "requirements.txt")),
        ],
        offline,
    )
    (site,) = (venv / "lib").glob("python*/site-packages")
    for distribution in distributions.values():
        _copy(distribution, site)
    releases = []
    if cache is not None:
        left = {entry.get("release") for entry in manifest["without"]}
        releases = [release for release in manifest["releases"] if release not in left]
        for release in releases:
            command = [python, "-P", "-m", "pytest_cudalink.cli", "toolchain", "add", "--installer=pip", release]
            _run(command, {**offline, "CUDALINK_CACHE": str(cache)})
    result = {
        "bundle": manifest["made"],
        "version": manifest["version"],
        "installed": {file["name"]: file["version"] for file in manifest["files"] if "requirement" in file},
        "machine": {name: distribution.version for name, distribution in distributions.items()},
        "toolchains": releases,
    }
    (venv / "bundle.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def _check_machine(manifest: dict[str, Any]) -> None:
    """Raise an error if the bundle is for another Python or another processor."""
    ours = ".".join(map(str, sys.version_info[:2]))
    if ours != manifest["python"]:
        wanted = manifest["python"]
        raise BundleError(
            f"Python is {ours}; expected {wanted}, for which the bundle was made; run it with python{wanted}, or make "
            f"one with --python {ours}"
        )
    if sys.platform != "linux" or not manifest["platform"].endswith(platform.machine()):
        raise BundleError(
            f"this machine is {sys.platform} on {platform.machine()}; expected {manifest['platform']}; make a bundle "
            "with its --platform"
        )


def _of_the_machine(wanted: list[dict[str, str]]) -> dict[str, metadata.Distribution]:
    """Return the packages of this Python that the bundle leaves out, by name.

    Raises BundleError if one is missing, or of another minor release.
    """
    distributions = {}
    for entry in wanted:
        name, version = entry["name"], entry["version"]
        remedy = f"install {name}=={version} for {sys.executable}, or make the bundle without `--without {name}`"
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError as error:
            msg = f"{name} is not installed on this machine; expected {version}, which the bundle leaves out; {remedy}"
            raise BundleError(msg) from error
        if distribution.version.split(".")[:2] != version.split(".")[:2]:
            msg = f"{name} of this machine is {distribution.version}; expected {version} or near it; {remedy}"
            raise BundleError(msg)
        distributions[name] = distribution
    return distributions


def _copy(distribution: metadata.Distribution, site: Path) -> None:
    """Copy the files of an installed package into the site-packages of an environment."""
    for file in distribution.files or ():
        if ".." in file.parts or "__pycache__" in file.parts:
            continue  # programs in bin/, which name another Python
        source = Path(str(distribution.locate_file(file)))
        if source.is_file():
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Run a command; an error has the end of its output."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join(f"  {line}" for line in (done.stdout + done.stderr).strip().splitlines()[-12:])
        msg = f"`{' '.join(command[:4])} …` failed with exit code {done.returncode}; nothing else was done:\n{said}"
        raise BundleError(msg)


def main(arguments: list[str] | None = None) -> int:
    """Check, join or install; return the exit code, 1 for a bundle that cannot be used."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    here = Path(__file__).resolve().parent
    parser.add_argument("source", nargs="?", type=Path, default=here, help="bundle, .tar or folder of volumes")
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="unpack a .tar or volumes into this folder")
    parser.add_argument("--venv", type=Path, metavar="FOLDER", help="make an environment, which replaces the folder")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="with --venv: put the CUDA releases there, too")
    options = parser.parse_args(arguments)
    try:
        folder = options.source
        if options.to is not None:
            unpack(options.source, options.to)
            folder = options.to
        manifest = check(folder)
        lines = [f"{folder}: all as in {MANIFEST}, files: {len(manifest['files'])}"]
        if options.venv is not None:
            result = install(folder, options.venv, options.cache)
            lines.append(f"{options.venv}: made without a network, packages: {len(result['installed'])}")
            for name, version in result["machine"].items():
                lines.append(f"  {name} {version}: the machine's, the bundle leaves it out")
            lines += [f"  CUDA {release}: in {options.cache}" for release in result["toolchains"]]
    except (BundleError, OSError, *_DAMAGE) as error:
        sys.stderr.write(f"unbundle: {error if isinstance(error, (BundleError, OSError)) else repr(error)}\n")
        return 1
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())

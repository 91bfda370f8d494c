"""The cache is trusted only where no other user can change it, and where it is what its names say."""

import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudalink import cli, emulator, toolchains
from pytest_cudalink.toolchains import ToolchainError, UntrustedError, folders

VERSION = "13.0"
#: A user that is neither the one of the tests nor root.
STRANGER = 65533

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def cache(monkeypatch, tmp_path) -> Path:
    """An empty cache of this user."""
    root = tmp_path / "cache"
    monkeypatch.setenv("CUDALINK_CACHE", str(root))
    return root


@pytest.fixture
def chain(cache) -> Path:
    """A cache with one toolchain, whose library is a text."""
    return make(cache, VERSION)


def make(cache: Path, name: str, **manifest: object) -> Path:
    """Write a toolchain with its manifest."""
    folder = cache / "toolchains" / name
    folders.make_folder(folder / "lib64")
    (folder / "lib64" / "libnvJitLink.so.13").write_text("library")
    (folder / "lib64" / "libnvJitLink.so").symlink_to("libnvJitLink.so.13")
    content = {"version": name, "layout": "libs", "packages": {}, "libraries": {"libnvJitLink.so.13": 7}} | manifest
    (folder / "toolchain.json").write_text(json.dumps(content))
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~0o022)
    return folder


def refused(words: str, version: str = VERSION) -> str:
    """The message with which every way to the toolchain refuses it."""
    with pytest.raises(UntrustedError, match=words) as caught:
        toolchains.library_path(version)
    with pytest.raises(ToolchainError):
        toolchains.installed()
    with pytest.raises(ToolchainError):
        toolchains.add(version)
    with pytest.raises(emulator.EmulatorError, match=words):
        emulator.emulation_for(version)
    return str(caught.value)


def test_a_manifest_without_sizes_is_used(cache) -> None:
    """A cache of an earlier version does not name its libraries."""
    folder = make(cache, VERSION, libraries={})
    assert toolchains.find(VERSION).path == toolchains.add(VERSION).path == folder
    with pytest.raises(ToolchainError, match=r"no library 'cufft'; it has: nvJitLink$"):
        toolchains.library_path(VERSION, "cufft")
    shutil.rmtree(folder / "lib64")
    assert toolchains.find(VERSION).path == folder


FOLDERS = [".", "toolchains", "toolchains/13.0", "toolchains/13.0/lib64"]
LIBRARY = "toolchains/13.0/lib64/libnvJitLink.so.13"


@pytest.mark.parametrize("part", [*FOLDERS, LIBRARY, "toolchains/13.0/toolchain.json"])
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
def test_others_cannot_write(part: str, mode: int, cache, chain) -> None:
    """What the group or all can write to is refused; the command in the message mends it."""
    (cache / part).chmod(mode)
    message = refused(f"mode 0{mode:o}")
    command = message.rpartition("Run: ")[2]
    subprocess.run(["/bin/sh", "-c", command], check=True)
    assert toolchains.library_path(VERSION).is_file()


@needs_root
@pytest.mark.parametrize("part", [*FOLDERS, LIBRARY])
def test_another_users_folder(part: str, cache, chain) -> None:
    """A part of the cache that belongs to another user is refused, with the command that takes it over."""
    os.chown(cache / part, STRANGER, STRANGER)
    message = refused(f"belongs to user {STRANGER}")
    command = message.rpartition("if you trust what is in it: ")[2]
    subprocess.run(["/bin/sh", "-c", command], check=True)
    assert toolchains.library_path(VERSION).is_file()


@needs_root
def test_root_with_the_home_of_another_user(cache, chain, monkeypatch, tmp_path) -> None:
    """Root in a container of CI trusts the owner of its home folder, whose cache was restored with its owner."""
    for path in (tmp_path, cache, *cache.rglob("*")):
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    refused(f"belongs to user {STRANGER}")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert toolchains.library_path(VERSION).is_file()


@needs_root
def test_a_user_trusts_root_and_itself_alone(chain, cache, tmp_path) -> None:
    """A user who is not root may use a read-only cache of root, but none of a third user, whatever HOME says."""
    # chroot, because this user may read neither the clone nor the folders above tmp_path, which each pytest that starts
    # closes again
    code = f"""
import os, sys
from pytest_cudalink import toolchains
os.chroot(sys.argv[1])
os.setuid({STRANGER})
os.environ |= {{'HOME': '/', 'CUDALINK_CACHE': '/cache'}}
try:
    print(toolchains.library_path('13.0'))
except toolchains.UntrustedError as error:
    print(error)
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    for path in (tmp_path, *cache.rglob("*"), cache):
        path.chmod(0o755)  # under any umask
    assert subprocess.check_output(command, text=True) == "/cache/toolchains/13.0/lib64/libnvJitLink.so.13\n"
    for path in (tmp_path, cache):
        os.chown(path, STRANGER - 1, -1)
    said = subprocess.check_output(command, text=True)
    assert said.startswith(f"/cache belongs to user {STRANGER - 1}; expected user {STRANGER} or root")


def test_a_parent_that_all_can_write_to(cache, chain, tmp_path) -> None:
    """A folder above the cache may be sticky like /tmp; without that, anybody could replace the cache."""
    tmp_path.chmod(0o1777)
    assert toolchains.library_path(VERSION).is_file()
    tmp_path.chmod(0o777)
    try:
        assert f"chmod o-w {tmp_path}" in refused("each could replace")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("part", FOLDERS)
def test_links_are_not_followed(part: str, cache, chain, tmp_path) -> None:
    """A symbolic link in place of a folder of the cache is refused."""
    place = Path(os.path.normpath(cache / part))
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    refused("symbolic link")


def test_a_library_that_links_out_of_the_cache(chain, tmp_path) -> None:
    """A link in lib64 may name another file of lib64, and nothing else."""
    (tmp_path / "evil.so").write_text("library")
    (chain / "lib64" / "libnvrtc.so.13").symlink_to(tmp_path / "evil.so")
    refused("leads out of its folder")


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ({"version": "12.9"}, "its manifest says 12.9"),
        ({"layout": "ctk"}, "in the layout 'ctk'"),
        ({"layout": "../x"}, "in the layout '../x'"),
        ({"libraries": {"libnvJitLink.so.13": 8}}, "should have 8 bytes and has 7 bytes"),
        ({"libraries": {"libnvrtc.so.13": 8}}, "should have 8 bytes and has nothing"),
        ({"libraries": {"../../../../etc/passwd": 8}}, "and has nothing"),
    ],
)
def test_the_manifest_agrees_with_its_folder(manifest, words: str, cache) -> None:
    """A folder 13.0 whose manifest says 12.9 does not answer as 13.0; a cut library is not loaded."""
    folder = make(cache, VERSION, **manifest)
    message = refused(words)
    assert f"rm -r {folder}; cudalink toolchain add 13.0" in message


def bind(path: Path) -> None:
    """Make a socket."""
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path.name)  # the address has room for 107 bytes


@pytest.mark.parametrize(
    "make",
    [
        *("", "[" * 100_000, "[]", "null", '{"version": 13}', "\0", '{"version": "13.0"}'),
        *(os.mkfifo, bind, lambda path: path.symlink_to("/dev/zero"), lambda path: path.mkdir(mode=0o700)),
        lambda path: path.touch(0o600) or os.truncate(path, 2 << 30),
    ],
    ids=["empty", "deep", "list", "null", "number", "zero", "half", "fifo", "socket", "device", "folder", "large"],
)
def test_a_manifest_that_cannot_be_read(make: Callable[[Path], None] | str, chain) -> None:
    """A toolchain without a readable manifest is as good as missing; no file neither waits nor fills the memory."""
    path = chain / "toolchain.json"
    if isinstance(make, str):
        path.write_text(make)
    else:
        path.unlink()
        make(path)
    with pytest.raises(ToolchainError, match="is not in"):
        toolchains.find(VERSION)
    assert toolchains.installed() == []


def test_a_cache_that_cannot_be_read(cache, chain, monkeypatch) -> None:
    """What cannot be checked is not used, although the folders below it can be opened."""
    plain = os.open
    monkeypatch.setattr(os, "open", lambda path, *_, **how: plain(cache / "none" if path == cache else path, *_, **how))
    assert toolchains.installed() == []
    with pytest.raises(ToolchainError, match="is not in"):
        toolchains.find(VERSION)


@pytest.fixture
def lock(cache, monkeypatch) -> Path:
    """The place of a lock; every download fails."""
    monkeypatch.setattr(toolchains, "run_installer", lambda *_: (_ for _ in ()).throw(ToolchainError("offline")))
    folders.make_folder(cache / "toolchains")
    return cache / "toolchains" / ".13.0.lock"


@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "dangling"])
def test_the_lock_is_a_file(kind: str, lock, tmp_path) -> None:
    """A pipe, a folder or a link in place of the lock is refused, and changes and makes nothing elsewhere."""
    other = tmp_path / "other"
    if kind == "link":
        other.write_text("data")
    {"fifo": os.mkfifo, "folder": Path.mkdir}.get(kind, lambda path: path.symlink_to(other))(lock)
    with pytest.raises(UntrustedError, match=r"expected a lock file .* Run: rm ") as caught:
        toolchains.add(VERSION)
    assert other.exists() == (kind == "link")
    if kind == "link":
        assert other.read_text() == "data"
        subprocess.run(["/bin/sh", "-c", str(caught.value).rpartition("Run: ")[2]], check=True)
        with pytest.raises(ToolchainError, match="offline"):
            toolchains.add(VERSION)


def test_the_lock_keeps_its_content(lock) -> None:
    """A lock is opened without emptying it, also where it is another name of a file."""
    other = lock.with_name("other")
    other.write_text("data")
    other.chmod(0o600)
    os.link(other, lock)
    with pytest.raises(ToolchainError, match="offline"):
        toolchains.add(VERSION)
    assert other.read_text() == "data"


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_a_cache_of_ours_is_our_own(umask: int, monkeypatch, tmp_path) -> None:
    """Whatever the umask, a new cache can be written by its owner alone, with all that an installer puts there."""
    root = tmp_path / "deep" / "er" / "cache"
    monkeypatch.setenv("CUDALINK_CACHE", str(root))

    def install(command, *_) -> None:
        site = Path(command[command.index("--target") + 1]) / "nvidia" / "cu13" / "lib"
        site.mkdir(parents=True)
        for name in ("nvJitLink", "nvrtc", "cudart"):
            (site / f"lib{name}.so.13").write_text(name)

    monkeypatch.setattr(toolchains, "run_installer", install)
    before = os.umask(umask)
    try:
        made, whole = toolchains.add(VERSION), toolchains.add(VERSION, "ctk")
    finally:
        os.umask(before)
    assert [path for path in tmp_path.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o022] == []
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    libraries = json.loads((made.path / "toolchain.json").read_text())["libraries"]
    assert libraries == {"libcudart.so.13": 6, "libnvJitLink.so.13": 9, "libnvrtc.so.13": 5}
    assert made.packages == toolchains.packages(VERSION) != whole.packages
    assert (made.lib / "libnvrtc.so").readlink() == made.library("nvrtc").relative_to(made.lib)
    assert not (made.path / "version.json").exists()
    # a toolkit has the versions of wheels in the names of its libraries, and in a file
    assert whole.library("nvrtc").readlink() == Path(f"libnvrtc.so.{whole.packages['nvidia-cuda-nvrtc']}")
    components = json.loads((whole.path / "version.json").read_text())
    assert components["cuda"]["version"] == toolchains.toolkit_version(VERSION)
    assert components["libnvjitlink"] == {"name": "CUDA nvJitLink", "version": whole.packages["nvidia-nvjitlink"]}


def test_the_command_names_what_is_refused(cache, chain, capsys) -> None:
    """Each verb of ``cudalink toolchain`` says it in one line, with exit code 1."""
    cache.chmod(0o777)
    for arguments in (["list"], ["path", VERSION], ["add", VERSION], ["remove", VERSION]):
        assert cli.main(["toolchain", *arguments]) == 1
        assert "chmod -R go-w" in capsys.readouterr().err
    assert chain.is_dir()


def test_a_refused_toolchain_can_be_removed(cache, capsys) -> None:
    """``remove`` deletes a folder whose manifest disagrees; of a link it deletes the link, and not its target."""
    folder = make(cache, VERSION, version="12.9")
    assert cli.main(["toolchain", "remove", VERSION]) == 0
    assert not folder.exists()
    assert capsys.readouterr().out.startswith("removed ")
    assert cli.main(["toolchain", "list"]) == 0
    assert "no toolchains in " in capsys.readouterr().out
    assert cli.main(["toolchain", "remove", VERSION]) == 1
    elsewhere = make(cache, "12.9")
    folder.symlink_to(elsewhere)
    assert cli.main(["toolchain", "remove", VERSION]) == 0
    assert not folder.is_symlink()
    assert (elsewhere / "toolchain.json").is_file()
    shutil.rmtree(cache)
    capsys.readouterr()

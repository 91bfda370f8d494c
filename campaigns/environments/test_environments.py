"""The campaign itself, on packages that a test writes: what is drawn, what is done to it, and what counts as agreed."""

import importlib.metadata
import re
import shutil
from pathlib import Path

import pytest

from campaigns.environments import __main__ as campaign
from campaigns.environments import generator
from campaigns.environments import wheels as wheels_of_field
from campaigns.environments.__main__ import Result, operations, table, try_one
from campaigns.environments.generator import Recipe, recipe

CCCL = "nvidia-cuda-cccl", "13.0.85"
HEADER = "nvidia/cu13/include/cccl/cuda/std/version"


@pytest.fixture
def wheels(tmp_path, monkeypatch) -> Path:
    """A cache with a header of CUDA's, and the cuda.pathfinder that is installed here."""
    for function in (generator._used_files_of, generator.requirements):
        function.cache_clear()
    monkeypatch.setattr(generator, "CACHE", tmp_path)
    monkeypatch.setattr(campaign, "CACHE", tmp_path)
    here = importlib.metadata.distribution("cuda-pathfinder")
    for file in here.files or ():
        target = tmp_path / "cuda-pathfinder-1.9.1" / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if ".." not in file.parts and "__pycache__" not in file.parts:
            shutil.copy(str(here.locate_file(file)), target)
    for version in ("13.0.85", "13.3.5.0.6"):
        info = tmp_path / f"nvidia-cuda-cccl-{version}" / f"nvidia_cuda_cccl-{version}.dist-info"
        info.mkdir(parents=True)
        header = info.parent / HEADER
        header.parent.mkdir(parents=True)
        header.write_text(f"// {version}\n", encoding="utf-8")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: nvidia-cuda-cccl\nVersion: {version}\n")
        (info / "RECORD").write_text(f"{header.relative_to(info.parent)},sha256=x,{header.stat().st_size}\n")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "failed"),
    [
        ([], set()),
        ([("missing", (CCCL[0], HEADER))], {"files"}),
        pytest.param([("cut", (CCCL[0], HEADER))], {"files"}, marks=pytest.mark.weekly),
        pytest.param([("gone", CCCL[0])], {"files"}, marks=pytest.mark.weekly),
        pytest.param([("over", (CCCL[0], "13.3.5.0.6"))], set(), marks=pytest.mark.weekly),
        ([("left-over", (CCCL[0], "13.3.5.0.6"))], set()),
    ],
)
def test_an_environment_is_made_and_judged(wheels, damage, failed) -> None:
    """Doctor and audit say what happens there, also of files that are gone, and the cache stays as it is."""
    drawn = Recipe(0, [("cuda-pathfinder", "1.9.1"), CCCL], damage=damage)
    result = try_one(drawn)
    assert set(result.failed) == failed, str(result)
    assert result.agrees, str(result)
    assert (wheels / f"{CCCL[0]}-{CCCL[1]}" / HEADER).read_text() == "// 13.0.85\n"
    assert not [*wheels.glob("made-*")]


def test_what_is_meant_to_be_there() -> None:
    """Operations need all of their parts; the compiler's are those of CUDA 13, beside it."""
    names = ("nvrtc", "nvcc", "crt", "nvdisasm")
    names = ("nvidia-nvjitlink", "nvidia-nvvm", *(f"nvidia-cuda-{name}" for name in names))
    chosen = [*operations(Recipe(0, [(name, "13") for name in names]))]
    assert {"nvrtc", "link-ptx", "link-ltoir", "ptxas", "nvdisasm"} <= {*chosen}
    assert not {"nvcc", "nvrtc-headers", "image", "links"} & {*chosen}
    chosen = [*operations(Recipe(0, [("nvidia-cuda-nvrtc-cu12", "12"), ("cuda-core", "1")], "13.0"))]
    assert {"links", "image", "imported cuda.core"} <= {*chosen}
    chosen = [*operations(Recipe(0, [("nvidia-nvjitlink", "13.1.115")], "12.9"))]
    assert "linked-image" in chosen
    assert "image" not in chosen
    named = [("library-path", [("nvidia-nvjitlink-cu12", "12.4.127")])]
    packages = [("nvidia-cuda-nvrtc-cu12", "12"), ("cuda-bindings", "12.9.0")]
    assert "link-ptx" in operations(Recipe(0, packages, None, named))
    assert "link-ptx" not in operations(Recipe(0, packages[:1], None, named))


@pytest.mark.parametrize(
    ("failed", "codes", "agrees", "words"),
    [
        ({}, [0, 0], True, "agreed"),
        ({}, [2, 2], True, "agreed"),
        ({}, [2, 0], False, "two verdicts"),
        ({}, [0, 1], False, "false red"),
        ({"nvrtc": "x"}, [1, 1], True, "agreed"),
        ({"nvrtc": "x"}, [1, 0], False, "two verdicts"),
        ({"nvrtc": "x"}, [2, 2], False, "false green"),
        ({}, ["KeyError: 1", 0], False, "crash"),
    ],
)
def test_agreement(failed, codes, agrees: bool, words: str) -> None:
    """What is not known is not red; a traceback is no answer."""
    result = Result(Recipe(7, []), failed, 3, codes, [], 0.0)
    assert (result.agrees, str(result).split(":")[0]) == (agrees, words)
    assert f"agreement {100 if agrees else 0}.0 %" in table([result])


def undamaged(monkeypatch) -> None:
    """Draw environments without a look into wheels."""
    monkeypatch.setattr(generator, "requirements", lambda *_: ())
    monkeypatch.setitem(generator._KINDS, "missing", (lambda *_: None, None))
    monkeypatch.setitem(generator._KINDS, "cut", (lambda *_: None, None))


def test_the_same_seed_gives_the_same_environments(monkeypatch) -> None:
    """Numbers do not depend on each other; most environments differ."""
    undamaged(monkeypatch)
    first = [str(recipe(1, number)) for number in range(50)]
    assert [str(recipe(1, number)) for number in reversed(range(50))] == first[::-1]
    assert [str(recipe(2, number)) for number in range(50)] != first
    assert len(set(first)) == 50


def test_the_gate_fetches_no_gigabytes(monkeypatch) -> None:
    """Of the environments that it may try, none has torch, whose wheels take longer to download than it has."""
    gate = (Path(__file__).parents[2] / ".ci" / "run").read_text(encoding="utf-8")
    ((count, seed),) = re.findall(r"environments=(\d+) --seed=(\d+)", gate)
    undamaged(monkeypatch)  # torch is drawn before what is required and what is damaged
    assert [number for number in range(int(count)) if "torch" in recipe(int(seed), number).names] == []
    assert any("torch" in recipe(1, number).names for number in range(int(count)))


def test_a_campaign_fails_for_one_that_disagrees(monkeypatch, capsys) -> None:
    """The table is printed."""
    answers = iter([{}, {"nvrtc": "x"}])
    monkeypatch.setattr(campaign, "try_one", lambda drawn, **_: Result(drawn, next(answers), 1, [0, 0], [], 0.0))
    monkeypatch.setattr(campaign, "recipe", lambda _, number: Recipe(number, []))
    monkeypatch.setattr("sys.argv", ["x", "--environments=2", "--seed=3", "--processes=1"])
    assert campaign.main() == 1
    out = capsys.readouterr().out
    assert "false green: 1: " in out
    assert "2 environments, 2 operations: agreement 50.0 %" in out
    assert "seed 3, " in out


@pytest.mark.parametrize(
    ("errors", "notes", "text", "agrees"),
    [
        ((), (), "", True),
        ((), (), "OSError: libnccl.so.2: cannot open shared object file: No such file or directory", False),
        ((), ("x.so needs libnccl.so.2",), "OSError: libnccl.so.2: cannot open shared object file", True),
        (("x.so needs libnccl.so.2",), (), "", False),
        (("x.so wants cublasX",), (), "OSError: /x.so: undefined symbol: cublasGetEmulation", True),
        ((), (), "OSError: libmpi.so.40: cannot open shared object file", True),
        ((), (), "ImportError: /x.so: undefined symbol: PyThreadState_GetUnchecked", True),
        ((), (), "OSError: libcuda.so.1: cannot open shared object file", True),
        (("x.so has LTO-IR of CUDA 13.3, and",), (), "", True),
    ],
)
def test_the_audit_of_a_wheel_agrees(errors, notes, text: str, agrees: bool) -> None:
    """Errors mean that something of CUDA's is missing; without one, at most what a note names is."""
    missing = tuple(wheels_of_field._lacks(text))
    assert wheels_of_field.Verdict("x.whl", errors, notes, missing, 1, ("highest",)).agrees == agrees

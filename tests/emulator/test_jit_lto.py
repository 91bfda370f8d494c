"""The kernels of ``benchmarks/jit_lto.py`` compile and link in every way, and an emulated driver loads the images."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cudalink.linker import ObjectCode, sample

ROOT = Path(__file__).parent.parent.parent
BENCHMARK = "benchmarks/jit_lto.py"
RELEASE = "13.0"
KERNELS = {"apply_transform": 1, "reduction": 2, "stencil": 1, "gather": 1}


@pytest.fixture(scope="module")
def prepared(toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kernel, compiled and linked with one release."""
    toolchain(RELEASE)
    folder = tmp_path_factory.mktemp("prepared")
    prepare = [sys.executable, BENCHMARK, "prepare", "--to", str(folder), "--releases", RELEASE]
    done = subprocess.run(prepare, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_lto_inlines_what_plain_links_call(prepared: Path, kernel: str) -> None:
    """The single source and LTO leave the kernel alone in the image; PTX and cubins keep the other unit's functions."""
    place = prepared / RELEASE / kernel

    def functions(name: str) -> list[str]:
        artifact = ObjectCode.from_cubin((place / name).read_bytes()).artifact
        assert not artifact.problems
        assert not artifact.undefined
        assert kernel in artifact.kernels
        return [section for section in artifact.text_sections if "slowpath" not in section]

    assert len(functions("whole-cubin")) == len(functions("linked.lto")) == 1
    assert len(functions("linked.ptx")) == len(functions("linked.cubin")) == 1 + KERNELS[kernel]


@pytest.mark.slow
def test_every_variant_is_linked_and_loaded(prepared: Path, on_driver, tmp_path: Path) -> None:
    """The run that a GPU gets goes through on an emulated driver, and the driver's linker refuses only LTO-IR."""
    pytest.importorskip("numpy")
    file = tmp_path / "figures.json"
    options = ("--rounds=2", "--rehearse", "--no-links", f"--json={file}")
    done = on_driver(RELEASE, BENCHMARK, "run", f"--prepared={prepared}", *options)
    assert done.returncode == 0, done.stderr
    content = json.loads(file.read_text(encoding="utf-8"))
    assert content["about"]["emulated"]
    assert list(content["kernels"]) == list(KERNELS)
    for kernel in content["kernels"].values():
        rows = {(row["way"], row["linker"]): row for row in kernel["variants"]}
        refused = {key: row["refused"]["code"] for key, row in rows.items() if "refused" in row}
        assert refused == {("lto", "driver"): 221}
        assert {key for key in rows if key[1] == "nvjitlink"} == {(way, "nvjitlink") for way in ("ptx", "cubin", "lto")}
        assert {key[0] for key in rows if key[1] == "driver"} == {"single", "ptx", "cubin", "lto"}
        loaded = [row for row in rows.values() if "refused" not in row]
        assert all(row["registers"] > 0 and row["times"]["l2"]["median"] > 0 for row in loaded)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["stencil", "gather"])
def test_machine_code_of_lto_is_that_of_the_single_source(prepared: Path, kernel: str, script) -> None:
    """LTO leaves no call and the same instructions; PTX and cubins keep their calls."""
    sass = script("benchmarks", "lto.sass")
    program = sass.nvdisasm()
    if program is None:
        pytest.skip("needs nvdisasm: pip install nvidia-cuda-nvdisasm")
    place = prepared / RELEASE / kernel
    names = ("whole-cubin", "linked.lto", "linked.ptx", "linked.cubin")
    single, lto, ptx, cubin = (sass.calls_left(sass.read((place / name).read_bytes(), program)) for name in names)
    assert lto == single
    assert single["calls"] == 0
    assert ptx == cubin
    assert int(ptx["calls"]) >= KERNELS[kernel]


def test_single_source_is_the_text_of_the_units(script) -> None:
    """Both units as one are their texts, unchanged; those of the sample are the sample's."""
    kernels = script("benchmarks", "lto.kernels")
    made = kernels.KERNELS
    assert list(made) == list(KERNELS)
    for kernel in made.values():
        assert kernels.single_source(kernel) == kernel.functor + kernel.kernel
    assert (made[sample.KERNEL].kernel, made[sample.KERNEL].functor) == (sample.MAIN_SOURCE, sample.USER_SOURCE)

"""What warp-lang compiles, links with its own copy of nvJitLink, and loads."""

import pytest
import warp as wp


@wp.kernel
def twice(values: wp.array(dtype=float)):
    at = wp.tid()
    values[at] = values[at] * 2.0


@pytest.fixture(autouse=True)
def cache(tmp_path):
    wp.config.kernel_cache_dir = str(tmp_path)
    wp.init()


def test_device():
    assert wp.get_cuda_devices()


def test_load():
    wp.load_module(device="cuda:0")


def test_generic():
    @wp.kernel
    def grows(values: wp.array(dtype=wp.vec3), matrix: wp.mat33):
        values[wp.tid()] = matrix * values[wp.tid()]

    wp.load_module(device="cuda:0")


def test_bad_source():
    @wp.func_native("nonsense;")
    def bad(value: int) -> int: ...

    @wp.kernel
    def calls(values: wp.array(dtype=int)):
        values[0] = bad(values[0])

    with pytest.raises(Exception, match="(?i)build|compil|nvrtc|load"):
        wp.load_module(device="cuda:0")

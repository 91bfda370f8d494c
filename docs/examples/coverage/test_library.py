"""A test of each path."""

import library
import pytest


@pytest.mark.cudalink(backend="each")
def test_link(linker_factory, cudalink_backend):
    backend, _ = library.link(linker_factory)
    assert backend == cudalink_backend

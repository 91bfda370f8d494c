from numba import cuda


def test_mapped():
    cuda.mapped_array(4)
    cuda.current_context().reset()

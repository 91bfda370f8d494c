"""What cuda-cccl's algorithms build, in C++ through nvJitLink, and with Python operators."""

import numpy as np
import pytest

try:
    import cuda.compute as algorithms
except ImportError:
    algorithms = pytest.importorskip("cuda.cccl.parallel.experimental")


class Array:
    """A device array that no test reads."""

    def __init__(self, kind):
        self.dtype, self.shape, self.size = np.dtype(kind), (64,), 64
        self.__cuda_array_interface__ = {
            "shape": (64,),
            "typestr": self.dtype.str,
            "data": (4096, False),
            "version": 3,
            "strides": None,
        }


START = np.array([0], dtype=np.int32)


def plus(a, b):
    return a + b


@pytest.mark.parametrize("operator", [plus, "PLUS"])
def test_reduce(operator):
    operator = getattr(algorithms.OpKind, operator) if isinstance(operator, str) else operator
    array = Array(np.int32)
    assert algorithms.make_reduce_into(d_in=array, d_out=array, op=operator, h_init=START)


def test_scan():
    array = Array(np.int32)
    assert algorithms.make_exclusive_scan(d_in=array, d_out=array, op=plus, init_value=START)


def test_transform():
    array = Array(np.int32)
    assert algorithms.make_unary_transform(d_in=array, d_out=array, op=lambda x: x + 1)


def test_bad_operator():
    def bad(a, b):
        return a.nonsense(b)

    array = Array(np.int32)
    with pytest.raises(Exception, match="(?i)nonsense|attribute|typing"):
        algorithms.make_reduce_into(d_in=array, d_out=array, op=bad, h_init=START)

"""What Dr.Jit compiles and loads on its CUDA backend."""

import drjit as dr


def test_backend():
    assert dr.has_backend(dr.JitBackend.CUDA)


def test_kernel():
    from drjit.cuda import Float

    values = dr.arange(Float, 16) * 2 + 1
    dr.eval(values)


def test_call():
    from drjit.cuda import Float, UInt

    values = dr.gather(Float, dr.arange(Float, 16), dr.arange(UInt, 16) // 2)
    dr.eval(dr.sin(values))

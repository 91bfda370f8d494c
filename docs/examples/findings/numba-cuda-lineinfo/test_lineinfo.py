from numba import cuda


def test_lineinfo():
    open("twice.cu", "w").write('extern "C" __device__ int twice(int *r, int x) { *r = 2 * x; return 0; }')  # noqa: PTH123, SIM115
    twice = cuda.declare_device("twice", "int32(int32)")

    @cuda.jit("void(int32[::1])", link=["twice.cu"], lineinfo=True)
    def kernel(values):
        values[0] = twice(values[0])

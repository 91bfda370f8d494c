from numba import cuda
from numba.cuda.cudadrv.driver import Linker


def test_link():
    cuda.current_context()
    linker = Linker.new(cc=(9, 0))
    linker.add_ptx(b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f() { ret; }\0", "f")
    assert linker.complete()

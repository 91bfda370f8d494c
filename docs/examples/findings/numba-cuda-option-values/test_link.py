from numba import cuda
from numba.cuda.cudadrv.driver import Linker

PTX = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry kernel() { ret; }\0"


def test_link():
    cuda.current_context()
    linker = Linker.new(cc=(9, 0))
    linker.add_ptx(PTX, "kernel")
    assert linker.complete()

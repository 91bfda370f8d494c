"""Memory that must not be touched any more once it is released; also for programs, which import no pytest for it."""

import ctypes
import mmap

_LIBC = ctypes.CDLL(None, use_errno=True)
_PROT_NONE = 0


class GuardedBlock:
    """Pages that become unreadable when released, and stay so: a touch after release is a segmentation fault."""

    def __init__(self, size: int) -> None:
        self._pages = mmap.mmap(-1, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
        self._size = len(self._pages)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        self.released = False

    def release(self) -> None:
        assert not self.released, "released twice"
        self.released = True
        if _LIBC.mprotect(ctypes.c_void_p(self.address), ctypes.c_size_t(self._size), _PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")

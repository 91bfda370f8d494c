"""A library that links with the driver and returns its log; yours takes its place."""

import ctypes

CU = ctypes.CDLL("libcuda.so.1")
ERROR_LOG, ERROR_LOG_SIZE = 5, 6
PTX = 1


class Link:
    def __init__(self):
        context = ctypes.c_void_p()
        CU.cuInit(0)
        CU.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        CU.cuCtxSetCurrent(context)
        self.state = ctypes.c_void_p()
        log = ctypes.create_string_buffer(65536)
        keys = (ctypes.c_int * 2)(ERROR_LOG, ERROR_LOG_SIZE)
        self.values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
        CU.cuLinkCreate_v2(2, keys, self.values, ctypes.byref(self.state))

    def add(self, ptx):
        return CU.cuLinkAddData_v2(self.state, PTX, ptx, len(ptx), b"input", 0, None, None)

    def close(self):
        CU.cuLinkDestroy(self.state)

"""A linker class with two backends; yours takes its place."""

import ctypes

from cuda.bindings import driver, nvjitlink


class MyLinker:
    BACKEND = "nvjitlink"

    def link(self, ptx, arch):
        return self._on_driver(ptx) if self.BACKEND == "driver" else self._on_nvjitlink(ptx, arch)

    def _on_nvjitlink(self, ptx, arch):
        handle = nvjitlink.create(1, [f"-arch={arch}"])
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, ptx, len(ptx), "input")
        nvjitlink.complete(handle)
        image = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, image)
        nvjitlink.destroy(handle)
        return bytes(image)

    def _on_driver(self, ptx):
        driver.cuInit(0)
        driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
        _, state = driver.cuLinkCreate(0, [], [])
        kind = driver.CUjitInputType.CU_JIT_INPUT_PTX
        driver.cuLinkAddData(state, kind, ptx, len(ptx), b"input", 0, [], [])
        _, address, size = driver.cuLinkComplete(state)
        image = ctypes.string_at(address, size)
        driver.cuLinkDestroy(state)
        return image

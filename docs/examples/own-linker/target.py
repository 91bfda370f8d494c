"""How pytest-cudalink forces MyLinker, and which of its calls are links."""

from pytest_cudalink.targets import LinkInput, Target, watch


class MyLinkerTarget(Target):
    name = "mylinker"
    modules = ("mylinker",)

    def install(self, module):
        link = module.MyLinker.link

        def watched(linker, ptx, arch):
            with watch(self.name, [LinkInput("ptx", "input", ptx)], backend=linker.BACKEND):
                return link(linker, ptx, arch)

        module.MyLinker.link = watched

    def force(self, module, backend):
        module.MyLinker.BACKEND = backend or "nvjitlink"

    def which_backend(self, module):
        return module.MyLinker.BACKEND


def pytest_cudalink_targets():
    return [MyLinkerTarget()]

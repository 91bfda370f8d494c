"""Teach the plugin to steer jitlib, and to watch what it links."""

from pytest_cudalink.targets import LinkInput, Target, watch


class JitLib(Target):
    name = "jitlib"
    modules = ("jitlib",)

    def install(self, module):
        link = module.link

        def watched(ptx, arch):
            backend = "driver" if module.uses_driver() else "nvjitlink"
            with watch(self.name, [LinkInput("ptx", "input", ptx)], backend=backend):
                return link(ptx, arch)

        module.link = watched

    def force(self, module, backend):
        module.USE_DRIVER = {"driver": True, "nvjitlink": False, None: None}[backend]

    def which_backend(self, module):
        return "driver" if module.uses_driver() else "nvjitlink"


def pytest_cudalink_targets():
    return [JitLib()]


def pytest_cudalink_facts():
    return {"jitlib": "1.0, from this folder"}

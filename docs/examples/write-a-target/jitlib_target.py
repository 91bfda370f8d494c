"""How pytest-cudalink forces jitlib, and which of its calls are links."""

from pytest_cudalink.targets import LinkInput, StaleRecipeError, Target, watch


class JitLib(Target):
    name = "jitlib"
    modules = ("jitlib",)
    distribution = "jitlib"

    def install(self, module):
        if not hasattr(module, "USE_DRIVER"):
            raise StaleRecipeError(f"jitlib {self.version()} has no USE_DRIVER; this target is for jitlib 1.0")
        link = module.link

        def watched(ptx):
            with watch(self.name, [LinkInput("ptx", "input", ptx)], backend=self.which_backend(module)):
                return link(ptx)

        module.link = watched

    def force(self, module, backend):
        module.USE_DRIVER = backend == "driver"

    def which_backend(self, module):
        return "driver" if module.USE_DRIVER else "nvjitlink"

from types import SimpleNamespace
from weakref import ref

from numba.cuda.cudadrv import driver

given = []
driver.driver = SimpleNamespace(  # in place of libcuda: each function succeeds, and the image has one byte
    cuLinkCreate=lambda *arguments: given.append(ref(arguments[2])),
    cuLinkComplete=lambda _, *out: [setattr(p._obj, "value", to) for p, to in zip(out, (id(out), 1), strict=True)],  # noqa: SLF001
    cuLinkDestroy=lambda _: print("cuLinkDestroy: option values are", "alive" if given[0]() else "freed"),
)
driver.CtypesLinker(cc=(9, 0)).complete()

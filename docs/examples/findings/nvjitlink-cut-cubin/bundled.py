from unittest import mock

from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode

with mock.patch("cuda.bindings.nvjitlink", create=True) as nvjitlink:
    import link  # noqa: F401 (what it adds is linked below)
inputs = [ObjectCode.from_cubin(call.args[2]) for call in nvjitlink.add_data.call_args_list]
Linker(*inputs, options=LinkerOptions(arch="sm_90", contain=True)).link("cubin")

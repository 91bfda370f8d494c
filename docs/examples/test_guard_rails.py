"""The parts of the toolkit that this project uses must be of one release."""


def test_compiler_and_headers_fit(guard_rails):
    guard_rails.load_nvidia_dynamic_lib("nvrtc")
    guard_rails.find_nvidia_header_directory("cudart")
    assert len({item.version for item in guard_rails.remembered}) == 1


def test_what_we_link_goes_through(guard_rails):
    guard_rails.declare_pipeline("nvrtc", "nvJitLink", "ltoir")
    guard_rails.load_nvidia_dynamic_lib("nvrtc")
    guard_rails.load_nvidia_dynamic_lib("nvJitLink")

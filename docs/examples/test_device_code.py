"""The PTX that a project ships must be compiled by every driver that the project promises."""

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry nothing() { ret; }
"""


def test_old_drivers_take_it(device_code, tmp_path):
    (tmp_path / "nothing.ptx").write_text(PTX)  # a wheel, a library or an archive would do, too

    device_code(tmp_path).check(archs=["A100", "L4", "sm_90"], drivers=">=525")

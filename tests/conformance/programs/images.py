"""What programs load: images by name, each as bytes that a NUL follows."""

from __future__ import annotations

from functools import cache
from pathlib import Path

__all__ = ["IMAGES", "KERNELS", "image"]

ARTIFACTS = Path(__file__).parents[2] / "data" / "artifacts"

PROGRAM = """.version 8.0
.target sm_70
.address_size 64
.visible .global .align 4 .u32 answer = 42;
.visible .const .align 8 .f64 factor = 0d4000000000000000;
.visible .global .align 16 .b8 zeros[1024];
.visible .entry plain() { ret; }
.visible .entry small(.param .u64 out, .param .u32 n)
.maxntid 128, 1, 1
{
  .shared .align 4 .b8 room[256];
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [n];
  setp.ne.u32 %p1, %r1, 12345;
  @%p1 bra done;
  mov.u32 %r2, room;
  st.shared.u32 [%r2], %r1;
  ld.shared.u32 %r3, [%r2];
  st.global.u32 [%rd1], %r3;
done:
  ret;
}
.visible .entry wide(.param .align 8 .b8 block[24], .param .u8 flag)
.reqntid 64, 2, 1
{
  .shared .align 16 .b8 hall[16384];
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [block];
  mov.u64 %rd2, hall;
  st.shared.u64 [%rd2], %rd1;
  ret;
}
"""

OTHER = """.version 7.0
.target sm_70
.address_size 64
.visible .global .align 8 .b8 table[64];
.visible .func (.param .b32 value) twice(.param .b32 input)
{
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [input];
  add.s32 %r2, %r1, %r1;
  st.param.b32 [value], %r2;
  ret;
}
"""

#: Kernels of "program" and the number of their parameters.
KERNELS = {"plain": 0, "small": 2, "wide": 2}

_TEXTS = {
    "program": PROGRAM,
    "other": OTHER,
    "broken": PROGRAM.replace("st.shared.u32", "st.nowhere.u32"),
    "newer": PROGRAM.replace(".version 8.0", ".version 12.0"),
    "undefined": OTHER + ".extern .func missing();\n.visible .entry calls() { call missing; ret; }\n",
    "text": "this is no image",
}
_FILES = {
    "linked": "13.0/linked.cubin",
    "part": "13.0/user.cubin",
    "foreign": "13.0/user-sm_100.cubin",
    "older": "12.9/linked.cubin",
    "fatbin": "nvcc/user.fatbin",
    "ltoir": "13.0/user.ltoir",
}

IMAGES = (*_TEXTS, *_FILES)


@cache
def image(name: str) -> bytes:
    """The bytes of an image, a NUL at the end."""
    if name in _TEXTS:
        return _TEXTS[name].encode() + b"\0"
    return (ARTIFACTS / _FILES[name]).read_bytes() + b"\0" * 8

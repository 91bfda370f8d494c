"""The device code that questions load, by name: PTX that every device since Volta compiles, and damaged texts."""

from __future__ import annotations

from typing import Final

__all__ = ["KERNELS", "TEXTS", "image"]

_PROGRAM: Final = """.version 8.0
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

_OTHER: Final = """.version 7.0
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
KERNELS: Final = {"plain": 0, "small": 2, "wide": 2}

TEXTS: Final = {
    "program": _PROGRAM,
    "other": _OTHER,
    "broken": _PROGRAM.replace("st.shared.u32", "st.nowhere.u32"),
    "newer": _PROGRAM.replace(".version 8.0", ".version 12.0"),
    "undefined": _OTHER + ".extern .func missing();\n.visible .entry calls() { call missing; ret; }\n",
    "text": "this is no image",
}


def image(name: str) -> bytes:
    """Return the bytes of an image, which end with a NUL."""
    return TEXTS[name].encode() + b"\0"

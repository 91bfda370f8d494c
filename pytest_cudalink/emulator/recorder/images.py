"""The device code that questions load, by name: PTX that every device since Volta compiles, and damaged texts."""

from __future__ import annotations

from typing import Final

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

_SAMPLES: Final = """.version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .b32 constants[4] = {1, 2, 3, 4};
.visible .entry vector_add(.param .u64 a, .param .u64 b, .param .u64 sum, .param .u32 n)
{
  .reg .pred %p;
  .reg .b32 %r<5>;
  .reg .f32 %f<4>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [sum];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r2, %r2, %r3, %r4;
  setp.ge.u32 %p, %r2, %r1;
  @%p bra done;
  mul.wide.u32 %rd4, %r2, 4;
  add.u64 %rd5, %rd1, %rd4;
  add.u64 %rd6, %rd2, %rd4;
  add.u64 %rd7, %rd3, %rd4;
  ld.global.f32 %f1, [%rd5];
  ld.global.f32 %f2, [%rd6];
  add.f32 %f3, %f1, %f2;
  st.global.f32 [%rd7], %f3;
done:
  ret;
}
.visible .entry scale(.param .u64 values, .param .u32 factor, .param .u32 n)
{
  .reg .pred %p;
  .reg .b32 %r<5>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [values];
  ld.param.u32 %r1, [factor];
  ld.param.u32 %r2, [n];
  mov.u32 %r3, %tid.x;
  setp.ge.u32 %p, %r3, %r2;
  @%p bra done;
  mul.wide.u32 %rd2, %r3, 4;
  add.u64 %rd3, %rd1, %rd2;
  ld.global.u32 %r4, [%rd3];
  mul.lo.u32 %r4, %r4, %r1;
  st.global.u32 [%rd3], %r4;
done:
  ret;
}
.visible .entry fetch(.param .u64 out, .param .u64 texture, .param .u32 width)
{
  .reg .b32 %r<4>;
  .reg .f32 %f<7>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [texture];
  ld.param.u32 %r1, [width];
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %tid.y;
  cvt.rn.f32.u32 %f1, %r2;
  cvt.rn.f32.u32 %f2, %r3;
  tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%rd2, {%f1, %f2}];
  mad.lo.u32 %r3, %r3, %r1, %r2;
  mul.wide.u32 %rd3, %r3, 4;
  add.u64 %rd4, %rd1, %rd3;
  st.global.f32 [%rd4], %f3;
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
    "samples": _SAMPLES,
}


def image(name: str) -> bytes:
    """Return the bytes of an image, which end with a NUL."""
    return TEXTS[name].encode() + b"\0"

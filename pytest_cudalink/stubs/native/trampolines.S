/* Each exported function is one jump through its slot. A slot holds the lazy entry below it until the first call. */

  .section .data.rel.local, "aw", %progbits
  .p2align 3
  .globl STUB_SLOTS
  .hidden STUB_SLOTS
  .type STUB_SLOTS, %object
STUB_SLOTS:

  .section .data.rel.ro.local, "aw", %progbits
  .p2align 3
  .globl STUB_TRAMPOLINES
  .hidden STUB_TRAMPOLINES
  .type STUB_TRAMPOLINES, %object
STUB_TRAMPOLINES:

#if defined(__x86_64__)

  .macro stub name, index
  .globl \name
  .type \name, @function
  .p2align 4
\name:
.Lentry_\index:
  .cfi_startproc
  endbr64
  jmpq *(STUB_SLOTS + 8 * \index)(%rip)
  .cfi_endproc
  .size \name, . - \name
.Llazy_\index:
  .cfi_startproc
  endbr64
  movl $\index, %r11d
  jmp .Lresolve
  .cfi_endproc
  .pushsection .data.rel.local, "aw", @progbits
  .quad .Llazy_\index
  .popsection
  .pushsection .data.rel.ro.local, "aw", @progbits
  .quad .Lentry_\index
  .popsection
  .endm

  .text
  .p2align 4
  .type .Lresolve, @function
.Lresolve: /* keeps every register that carries an argument, %al (vector registers of a variadic call) and %r10 */
  .cfi_startproc
  pushq %rbp
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %rbp, 0
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  subq $192, %rsp
  movq %rdi, 128(%rsp)
  movq %rsi, 136(%rsp)
  movq %rdx, 144(%rsp)
  movq %rcx, 152(%rsp)
  movq %r8, 160(%rsp)
  movq %r9, 168(%rsp)
  movq %rax, 176(%rsp)
  movq %r10, 184(%rsp)
  movaps %xmm0, (%rsp)
  movaps %xmm1, 16(%rsp)
  movaps %xmm2, 32(%rsp)
  movaps %xmm3, 48(%rsp)
  movaps %xmm4, 64(%rsp)
  movaps %xmm5, 80(%rsp)
  movaps %xmm6, 96(%rsp)
  movaps %xmm7, 112(%rsp)
  movl %r11d, %edi
  movq 8(%rbp), %rsi
  call STUB_RESOLVE
  movq %rax, %r11
  movaps (%rsp), %xmm0
  movaps 16(%rsp), %xmm1
  movaps 32(%rsp), %xmm2
  movaps 48(%rsp), %xmm3
  movaps 64(%rsp), %xmm4
  movaps 80(%rsp), %xmm5
  movaps 96(%rsp), %xmm6
  movaps 112(%rsp), %xmm7
  movq 128(%rsp), %rdi
  movq 136(%rsp), %rsi
  movq 144(%rsp), %rdx
  movq 152(%rsp), %rcx
  movq 160(%rsp), %r8
  movq 168(%rsp), %r9
  movq 176(%rsp), %rax
  movq 184(%rsp), %r10
  leave
  .cfi_def_cfa %rsp, 8
  jmpq *%r11
  .cfi_endproc
  .size .Lresolve, . - .Lresolve

#elif defined(__aarch64__)

  .macro stub name, index
  .globl \name
  .type \name, %function
  .p2align 4
\name:
.Lentry_\index:
  .cfi_startproc
  hint #34 /* bti c */
  adrp x16, STUB_SLOTS + 8 * \index
  ldr x16, [x16, :lo12:STUB_SLOTS + 8 * \index]
  br x16
  .cfi_endproc
  .size \name, . - \name
.Llazy_\index:
  .cfi_startproc
  hint #34
  mov w17, #\index
  b .Lresolve
  .cfi_endproc
  .pushsection .data.rel.local, "aw", %progbits
  .xword .Llazy_\index
  .popsection
  .pushsection .data.rel.ro.local, "aw", %progbits
  .xword .Lentry_\index
  .popsection
  .endm

  .text
  .p2align 4
  .type .Lresolve, %function
.Lresolve: /* keeps x0 to x8 and q0 to q7 */
  .cfi_startproc
  stp x29, x30, [sp, #-224]!
  .cfi_def_cfa_offset 224
  .cfi_offset x29, -224
  .cfi_offset x30, -216
  mov x29, sp
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x8, [sp, #80]
  stp q0, q1, [sp, #96]
  stp q2, q3, [sp, #128]
  stp q4, q5, [sp, #160]
  stp q6, q7, [sp, #192]
  mov w0, w17
  mov x1, x30
  bl STUB_RESOLVE
  mov x16, x0
  ldp q0, q1, [sp, #96]
  ldp q2, q3, [sp, #128]
  ldp q4, q5, [sp, #160]
  ldp q6, q7, [sp, #192]
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldr x8, [sp, #80]
  ldp x29, x30, [sp], #224
  .cfi_restore x29
  .cfi_restore x30
  .cfi_def_cfa_offset 0
  br x16
  .cfi_endproc
  .size .Lresolve, . - .Lresolve

#else
#error "cudalink stubs need Linux on x86-64 or aarch64"
#endif

/* the functions; their slots follow STUB_SLOTS, and their own addresses STUB_TRAMPOLINES, in this order */

// What the kernels are built on: 16- and 8-bit types, matrix instructions and asynchronous copies, under names that a CPU has too.
//
// A GPU uses the inline PTX below; a CPU uses tests/support/cuda_on_cpu/common_on_cpu.h, which defines the same names. No NVIDIA
// header is needed, so that NVRTC alone compiles a kernel. Everything here exists from sm_80 on.
#pragma once

struct bfloat16 { unsigned short bits; };
struct float16 { unsigned short bits; };
struct uint8 { unsigned char bits; };
struct int8 { signed char bits; };

constexpr float LOG2_E = 1.4426950408889634f;

#ifdef CUDA_ON_CPU
#include "common_on_cpu.h"
#else

#define DEVICE __device__ __forceinline__

// The only access to shared memory: a struct whose size the launch passes. The CPU checks that the launch passes exactly that size.
#define SHARED(Type, name)                                                \
  extern __shared__ __align__(16) unsigned char shared_memory[];          \
  Type& name = *reinterpret_cast<Type*>(shared_memory)

DEVICE unsigned shared_address(const void* pointer) { return static_cast<unsigned>(__cvta_generic_to_shared(pointer)); }

// The hardware's own 2^x and 1/x: one instruction each, exact to about two units in the last place.
DEVICE float fast_exp2(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float fast_reciprocal(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }

DEVICE unsigned pack(float low, float high, bfloat16) {
  unsigned pair; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low)); return pair;
}
DEVICE unsigned pack(float low, float high, float16) {
  unsigned pair; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low)); return pair;
}
DEVICE float widen(unsigned short bits, float16) { float x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits)); return x; }

// One warp's product of 16×16 by 16×8, added to four sums a lane.
DEVICE void multiply_add(float (&sum)[4], const unsigned (&left)[4], unsigned right0, unsigned right1, bfloat16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}
DEVICE void multiply_add(float (&sum)[4], const unsigned (&left)[4], unsigned right0, unsigned right1, float16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}
// One warp's product of 16×32 by 32×8 in integers; the right operand is int8, the left one of the named type.
DEVICE void multiply_add(int (&sum)[4], const unsigned (&left)[4], unsigned right0, unsigned right1, int8) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}
DEVICE void multiply_add(int (&sum)[4], const unsigned (&left)[4], unsigned right0, unsigned right1, uint8) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}
// The sum of four products of one lane: bytes of the left word, of the named type, by int8.
DEVICE int dot(int sum, unsigned left, unsigned right, int8) {
  int made; asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(made) : "r"(left), "r"(right), "r"(sum)); return made;
}
DEVICE int dot(int sum, unsigned left, unsigned right, uint8) {
  int made; asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(made) : "r"(left), "r"(right), "r"(sum)); return made;
}

// Loads four 8×8 matrices from shared memory, each lane passing the address of one row of 16 bytes; `transposed` returns columns.
DEVICE void load_matrices(unsigned (&parts)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3]) : "r"(shared_address(row)) : "memory");
}
DEVICE void load_matrices_transposed(unsigned (&parts)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3]) : "r"(shared_address(row)) : "memory");
}

// Copies 16 bytes from global to shared memory, bypassing the registers; writes zeros where nothing is to be read.
DEVICE void copy_async(void* to, const void* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(shared_address(to)), "l"(from), "r"(is_there ? 16 : 0) : "memory");
}
DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int GROUPS_LEFT> DEVICE void await_copies() { asm volatile("cp.async.wait_group %0;" :: "n"(GROUPS_LEFT) : "memory"); }

#endif  // CUDA_ON_CPU

DEVICE float widen(unsigned short bits, bfloat16) { return __uint_as_float(static_cast<unsigned>(bits) << 16); }

// The two numbers of a 32-bit word.
DEVICE float2 unpack(unsigned pair, bfloat16) { return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)); }
DEVICE float2 unpack(unsigned pair, float16 type) {
  return make_float2(widen(static_cast<unsigned short>(pair), type), widen(static_cast<unsigned short>(pair >> 16), type));
}

// What a CUDA kernel finds when g++ compiles it: CUDA's own words. (kernels/common.cuh has its CPU half in common_on_cpu.h.)
//
// Every CUDA thread is a fiber (fibers.cpp); threads take turns only where they meet: at barriers and at the instructions of
// a whole warp (collectives.cpp). This file is compiled with the kernel, so the sanitizers see what it reads and writes;
// the runtime is not, so they do not see how threads are made to take turns.
#pragma once
#define CUDA_ON_CPU 1
#define __CUDA_ARCH__ 900

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "runtime.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __align__(n) alignas(n)

struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace cuda_on_cpu {

// The bits of a number as it travels between lanes.
template <class T>
uint64_t bits_of(T value) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T shuffle(const char* name, unsigned mask, T value, int source) {
  const uint64_t bits = from_lane(name, mask, bits_of(value), source);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class... P, size_t... I>
void unpack_and_call(void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<P*>(arguments[I])...);
}
template <class... P>
struct Registered : Entry {
  Registered(const char* name, void (*kernel)(P...)) {
    static const int sizes[] = {sizeof(P)..., 0};
    this->name = name;
    this->kernel = reinterpret_cast<void (*)()>(kernel);
    this->call = [](void (*plain)(), void** arguments) {
      unpack_and_call(reinterpret_cast<void (*)(P...)>(plain), arguments, std::index_sequence_for<P...>{});
    };
    this->count = sizeof...(P);
    this->sizes = sizes;
    this->next = entries;
    entries = this;
  }
};

}  // namespace cuda_on_cpu

#define CUDA_ON_CPU_JOINED(a, b) a##b
#define CUDA_ON_CPU_NAMED(line) CUDA_ON_CPU_JOINED(entry_, line)
#define ENTRY(...) static cuda_on_cpu::Registered CUDA_ON_CPU_NAMED(__COUNTER__)(#__VA_ARGS__, &__VA_ARGS__);

#define threadIdx (cuda_on_cpu::current->index)
#define blockIdx (cuda_on_cpu::block_index)
#define blockDim (cuda_on_cpu::block_size)
#define gridDim (cuda_on_cpu::grid_size)
constexpr int warpSize = 32;

inline void __syncthreads() { cuda_on_cpu::meet_block("__syncthreads", 0); }
inline int __syncthreads_count(int vote) { return cuda_on_cpu::meet_block("__syncthreads_count", vote != 0); }
inline int __syncthreads_or(int vote) { return cuda_on_cpu::meet_block("__syncthreads_or", vote != 0) != 0; }
inline void __syncwarp(unsigned mask = ~0u) { cuda_on_cpu::meet_warp(mask); }
inline unsigned __ballot_sync(unsigned mask, int vote) { return cuda_on_cpu::vote_warp(mask, vote != 0); }
inline int __any_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote) != 0; }
inline int __all_sync(unsigned mask, int vote) { return __ballot_sync(mask, !vote) == 0; }

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int lane = cuda_on_cpu::current->lane;
  return cuda_on_cpu::shuffle("__shfl_sync", mask, value, lane / width * width + source % width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int distance, int width = 32) {
  const int lane = cuda_on_cpu::current->lane, source = lane ^ distance;
  return cuda_on_cpu::shuffle("__shfl_xor_sync", mask, value, source / width > lane / width ? lane : source);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, int distance, int width = 32) {
  const int lane = cuda_on_cpu::current->lane;
  return cuda_on_cpu::shuffle("__shfl_down_sync", mask, value, lane % width + distance < width ? lane + distance : lane);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int distance, int width = 32) {
  const int lane = cuda_on_cpu::current->lane;
  return cuda_on_cpu::shuffle("__shfl_up_sync", mask, value, lane % width >= distance ? lane - distance : lane);
}

inline unsigned __float_as_uint(float x) { return static_cast<unsigned>(cuda_on_cpu::bits_of(x)); }
inline float __uint_as_float(unsigned bits) { float x; std::memcpy(&x, &bits, sizeof x); return x; }
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned places) {
  const uint64_t bytes = low | static_cast<uint64_t>(high) << 32;
  unsigned made = 0;
  for (int i = 0; i < 4; i++) made |= static_cast<unsigned>(bytes >> 8 * (places >> 4 * i & 7) & 255) << 8 * i;
  return made;
}
template <class T> T __ldg(const T* at) { return *at; }
using std::max;
using std::min;

// The loops shared by all attention kernels: queries times keys, a softmax of rows, weights times values.
//
// mma.m16n8k16 distributes a tile of 16×8 sums so that a lane holds rows g and g + 8 and columns 2t, 2t + 1 of it (g = lane / 4,
// t = lane % 4): four lanes share a row, and `half` selects one of its two rows. A warp has SLABS times 16 queries: the keys and
// values that it reads serve all of them.
#pragma once
#include "common.cuh"

// Every 16 bytes of ROWS rows of SIZE elements, distributed over THREADS: `visit(row, element)`.
template <int ROWS, int SIZE, int THREADS, class Visit>
DEVICE void for_each_vector(const Visit& visit) {
  constexpr int CHUNKS = SIZE / 8;
  static_assert(ROWS * CHUNKS % THREADS == 0 && THREADS % CHUNKS == 0, "all threads have as much, each of one column");
  const int first = threadIdx.x / CHUNKS, number = threadIdx.x % CHUNKS * 8;
#pragma unroll
  for (int more = 0; more < ROWS; more += THREADS / CHUNKS) visit(first + more, number);
}

// 32 elements of each query of a warp, the first of which is at `queries`.
template <int PITCH, int SLABS, class T>
DEVICE void load_queries(unsigned (&query)[SLABS][2][4], const T* queries) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int s = 0; s < SLABS; s++)
#pragma unroll
    for (int k = 0; k < 2; k++) load_matrices(query[s][k], queries + (s * 16 + lane % 16) * PITCH + k * 16 + lane / 16 * 8);
}

// These 32 elements times the same 32 of all keys, added to the scores.
template <int PITCH, int SLABS, int TILES, class T>
DEVICE void multiply_by_keys(float (&score)[SLABS][TILES][4], const unsigned (&query)[SLABS][2][4], const T* keys) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < TILES; n++) {
    unsigned key[4];
    load_matrices(key, keys + (n * 8 + lane % 8) * PITCH + lane / 8 * 8);
#pragma unroll
    for (int s = 0; s < SLABS; s++) {
      multiply_add(score[s][n], query[s][0], key[0], key[1], T{});
      multiply_add(score[s][n], query[s][1], key[2], key[3], T{});
    }
  }
}

DEVICE float highest_of_row(float mine) {
  mine = fmaxf(mine, __shfl_xor_sync(~0u, mine, 1));
  return fmaxf(mine, __shfl_xor_sync(~0u, mine, 2));
}
DEVICE float sum_of_row(float mine) {
  mine += __shfl_xor_sync(~0u, mine, 1);
  return mine + __shfl_xor_sync(~0u, mine, 2);
}

// The highest score of a row among those that a lane holds.
template <int TILES>
DEVICE float highest_of_lane(const float (&score)[TILES][4], int half) {
  float highest = fmaxf(score[0][2 * half], score[0][2 * half + 1]);
#pragma unroll
  for (int n = 1; n < TILES; n++) highest = fmaxf(highest, fmaxf(score[n][2 * half], score[n][2 * half + 1]));
  return highest;
}

// Converts the scores of a row to weights, 2^(score · scale - highest); returns the sum of those that a lane holds.
template <int TILES>
DEVICE float weigh(float (&score)[TILES][4], int half, float scale, float highest) {
  float sum = 0.0f;
#pragma unroll
  for (int n = 0; n < TILES; n++)
#pragma unroll
    for (int e = 2 * half; e < 2 * half + 2; e++) {
      score[n][e] = fast_exp2(score[n][e] * scale - highest);
      sum += score[n][e];
    }
  return sum;
}

// Weights times values, added to `mixed`; the sums of one product have the layout of the left operand of the next.
template <int PITCH, int SLABS, int TILES, int PARTS, class T>
DEVICE void multiply_by_values(float (&mixed)[SLABS][PARTS][4], const float (&weight)[SLABS][TILES][4], const T* values) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < (TILES + 1) / 2; k++) {
    const bool has_second = 2 * k + 1 < TILES;
    unsigned weights[SLABS][4];
#pragma unroll
    for (int s = 0; s < SLABS; s++) {
      const float(&first)[4] = weight[s][2 * k];
      const float(&second)[4] = weight[s][has_second ? 2 * k + 1 : 2 * k];
      weights[s][0] = pack(first[0], first[1], T{});
      weights[s][1] = pack(first[2], first[3], T{});
      weights[s][2] = has_second ? pack(second[0], second[1], T{}) : 0u;
      weights[s][3] = has_second ? pack(second[2], second[3], T{}) : 0u;
    }
#pragma unroll
    for (int d = 0; d < PARTS / 2; d++) {
      unsigned value[4];
      load_matrices_transposed(value, values + (k * 16 + lane % 16) * PITCH + d * 16 + lane / 16 * 8);
#pragma unroll
      for (int s = 0; s < SLABS; s++) {
        multiply_add(mixed[s][2 * d], weights[s], value[0], value[1], T{});
        multiply_add(mixed[s][2 * d + 1], weights[s], value[2], value[3], T{});
      }
    }
  }
}

// Stores a lane's part of an output row, which begins at `row`.
template <int PARTS, class T>
DEVICE void store_row(T* row, const float (&mixed)[PARTS][4], int half, float inverse) {
  T* to = row + threadIdx.x % 4 * 2;
#pragma unroll
  for (int d = 0; d < PARTS; d++)
    *reinterpret_cast<unsigned*>(to + d * 8) = pack(mixed[d][2 * half] * inverse, mixed[d][2 * half + 1] * inverse, T{});
}

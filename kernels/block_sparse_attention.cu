// Attention to chosen blocks of keys: softmax(scale · q·kᵀ) · v over 64 keys at a time, and only those 64 that a list names.
//
//   query (batch · heads, queries, SIZE), key and value (batch · heads, keys, SIZE)  →  out as query
//   kept (batch · heads, blocks of 64 queries, most): numbers of blocks of keys; the first negative one ends a list
//
// Never in memory: scores, weights, masks. What a list leaves out is neither read nor computed. Whatever the lists say, nothing
// outside of key and value is read.
//
// A block is 64 queries of one head, a warp 16 of them, dealt out as in window_attention.cu. The next keys and values are on
// their way while these are multiplied; the softmax is corrected as higher scores are met.
#include "common.cuh"

template <class T, int SIZE>
struct Sparse {
  static constexpr int BLOCK = 64, WARPS = 4, THREADS = 128;
  static constexpr int PITCH = SIZE + 8;                 // 16 bytes more, so that eight rows of a matrix lie in eight sets of banks
  static constexpr int TILES = BLOCK / 8;                // of 8 keys

  struct Stage {
    alignas(16) T key[BLOCK * PITCH];
    alignas(16) T value[BLOCK * PITCH];
  };
  struct Tile {
    alignas(16) T query[BLOCK * PITCH];
    Stage stage[2];
  };
};

constexpr float LOWEST = -1e30f;                         // finite, so that a row that sees nothing has weights of 0, not of NaN

template <class T, int SIZE>
__global__ void __launch_bounds__(128)
block_sparse_attention(const T* __restrict__ query, const T* __restrict__ key, const T* __restrict__ value,
                       const int* __restrict__ kept, const int* __restrict__ lengths, T* __restrict__ out,
                       int queries, int keys, int heads, int most, int is_causal, float scale) {
  using S = Sparse<T, SIZE>;
  constexpr int CHUNKS = SIZE / 8;                       // of 16 bytes in a row
  SHARED(typename S::Tile, tile);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
  const int first = blockIdx.x * S::BLOCK, limit = lengths ? max(0, min(keys, lengths[blockIdx.y / heads])) : keys;
  const long long pair = blockIdx.y;
  const T* const keys_from = key + pair * keys * SIZE;
  const T* const values_from = value + pair * keys * SIZE;
  const int* const list = kept + (pair * gridDim.x + blockIdx.x) * most;

  const auto fetch = [&](int number, int slot) {
    const long long start = static_cast<long long>(number) * S::BLOCK;
#pragma unroll
    for (int step = 0; step < S::BLOCK * CHUNKS / S::THREADS; step++) {
      const int i = threadIdx.x + step * S::THREADS, row = i / CHUNKS, chunk = i % CHUNKS * 8;
      const bool is_there = start + row < limit;
      const long long from = is_there ? (start + row) * SIZE + chunk : 0;
      copy_async(tile.stage[slot].key + row * S::PITCH + chunk, keys_from + from, is_there);
      copy_async(tile.stage[slot].value + row * S::PITCH + chunk, values_from + from, is_there);
    }
  };

#pragma unroll
  for (int step = 0; step < S::BLOCK * CHUNKS / S::THREADS; step++) {
    const int i = threadIdx.x + step * S::THREADS, row = i / CHUNKS, chunk = i % CHUNKS * 8;
    const bool is_there = first + row < queries;
    copy_async(tile.query + row * S::PITCH + chunk, is_there ? query + (pair * queries + first + row) * SIZE + chunk : query, is_there);
  }
  commit_copies();
  int number = most > 0 ? list[0] : -1;
  if (number >= 0) fetch(number, 0);
  commit_copies();
  await_copies<1>();
  __syncthreads();
  unsigned left[SIZE / 16][4];
#pragma unroll
  for (int k = 0; k < SIZE / 16; k++)
    load_matrices(left[k], tile.query + (warp * 16 + lane % 16) * S::PITCH + k * 16 + lane / 16 * 8);

  const int rows[2] = {first + warp * 16 + group, first + warp * 16 + group + 8};
  const float scale_to_log2 = scale * LOG2_E;            // so that 2^x is the exponential
  float mixed[SIZE / 8][4] = {}, highest[2] = {LOWEST, LOWEST}, sum[2] = {};

#pragma unroll 1
  for (int n = 0; number >= 0; n++) {
    await_copies<0>();
    __syncthreads();                                     // all of this stage is there, and nobody reads the other
    const int next = n + 1 < most ? list[n + 1] : -1;
    if (next >= 0) fetch(next, (n + 1) % 2);
    commit_copies();
    const typename S::Stage& stage = tile.stage[n % 2];

    float score[S::TILES][4] = {};
#pragma unroll
    for (int t = 0; t < S::TILES; t++)
#pragma unroll
      for (int k = 0; k < SIZE / 32; k++) {
        unsigned right[4];
        load_matrices(right, stage.key + (t * 8 + lane % 8) * S::PITCH + k * 32 + lane / 8 * 8);
        multiply_add(score[t], left[2 * k], right[0], right[1], T{});
        multiply_add(score[t], left[2 * k + 1], right[2], right[3], T{});
      }

    // Only at the diagonal and at the end is there anything to hide.
    const long long start = static_cast<long long>(number) * S::BLOCK;
    if (start + S::BLOCK > limit || (is_causal && start + S::BLOCK - 1 > first)) {
#pragma unroll
      for (int t = 0; t < S::TILES; t++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const long long at = start + t * 8 + quad * 2 + e % 2;
          if (at >= limit || (is_causal && at > rows[e / 2])) score[t][e] = __uint_as_float(0xff800000u);  // -∞: a weight of 0 beside any other
        }
    }

#pragma unroll
    for (int half = 0; half < 2; half++) {               // a row, which four lanes hold together
      float top = highest[half];
#pragma unroll
      for (int t = 0; t < S::TILES; t++) top = fmaxf(top, fmaxf(score[t][2 * half], score[t][2 * half + 1]) * scale_to_log2);
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      const float correction = fast_exp2(highest[half] - top);
      highest[half] = top;
      sum[half] *= correction;
#pragma unroll
      for (int d = 0; d < SIZE / 8; d++) {
        mixed[d][2 * half] *= correction;
        mixed[d][2 * half + 1] *= correction;
      }
#pragma unroll
      for (int t = 0; t < S::TILES; t++)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++) {
          score[t][e] = fast_exp2(score[t][e] * scale_to_log2 - top);
          sum[half] += score[t][e];
        }
    }

    // Weights times values; the sums of one product are laid out as the left side of the next.
#pragma unroll
    for (int k = 0; k < S::TILES / 2; k++) {
      const float(&one)[4] = score[2 * k];
      const float(&other)[4] = score[2 * k + 1];
      const unsigned weights[4] = {pack(one[0], one[1], T{}), pack(one[2], one[3], T{}),
                                   pack(other[0], other[1], T{}), pack(other[2], other[3], T{})};
#pragma unroll
      for (int d = 0; d < SIZE / 16; d++) {
        unsigned right[4];
        load_matrices_transposed(right, stage.value + (k * 16 + lane % 16) * S::PITCH + d * 16 + lane / 16 * 8);
        multiply_add(mixed[2 * d], weights, right[0], right[1], T{});
        multiply_add(mixed[2 * d + 1], weights, right[2], right[3], T{});
      }
    }
    number = next;
  }

#pragma unroll
  for (int half = 0; half < 2; half++) {
    float whole = sum[half];
    whole += __shfl_xor_sync(~0u, whole, 1);
    whole += __shfl_xor_sync(~0u, whole, 2);
    const float inverse = whole == 0.0f ? 0.0f : fast_reciprocal(whole);   // a query that sees nothing gets zeros
    if (rows[half] < queries) {
      T* to = out + (pair * queries + rows[half]) * SIZE + quad * 2;
#pragma unroll
      for (int d = 0; d < SIZE / 8; d++)
        *reinterpret_cast<unsigned*>(to + d * 8) = pack(mixed[d][2 * half] * inverse, mixed[d][2 * half + 1] * inverse, T{});
    }
  }
}

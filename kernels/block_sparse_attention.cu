// Attention to chosen blocks of keys: softmax(scale · q·kᵀ) · v over 64 keys at a time, and only over the blocks that a list names.
//
//   query (batch · heads, queries, SIZE), key and value (batch · heads, keys, SIZE)  →  out as query
//   kept (batch · heads, blocks of 64 queries, most): numbers of blocks of keys; the first negative one ends a list
//
// Never in memory: scores, weights, masks. Blocks that are not listed are neither read nor computed. Whatever the lists contain,
// nothing outside of key and value is read.
//
// A block is 64 queries of one head, a warp SLABS times 16 of them, distributed as in attention.cuh. The next blocks of keys and
// values, as many as there are STAGES but one, are being copied while these are multiplied; the softmax is rescaled when higher
// scores are met. IS_HELD keeps the queries in registers; otherwise they are read again for each block of keys. IS_LATE waits for
// values only once the weights are computed.
#include "attention.cuh"

template <class T, int SIZE, int SLABS, int STAGES>
struct Sparse {
  static constexpr int BLOCK = 64, WARPS = BLOCK / 16 / SLABS, THREADS = 32 * WARPS;
  static constexpr int PITCH = SIZE + 8;                 // 16 bytes more, so that eight rows of a matrix lie in eight sets of banks
  static constexpr int TILES = BLOCK / 8;                // of 8 keys

  static_assert(BLOCK == 16 * SLABS * WARPS, "warps share the queries of a block evenly");
  static_assert(STAGES >= 2 && SIZE % 32 == 0, "one stage comes while another is multiplied, 32 numbers at once");

  struct Stage {
    alignas(16) T key[BLOCK * PITCH];
    alignas(16) T value[BLOCK * PITCH];
  };
  struct Tile {
    alignas(16) T query[BLOCK * PITCH];
    Stage stage[STAGES];
  };
};

constexpr float LOWEST = -1e30f;                         // finite, so that a row that sees nothing has weights of 0, not of NaN

template <class T, int SIZE, int SLABS, int STAGES, int IS_HELD, int IS_LATE, int BLOCKS>
__global__ void __launch_bounds__(128 / SLABS, BLOCKS)
block_sparse_attention(const T* __restrict__ query, const T* __restrict__ key, const T* __restrict__ value,
                       const int* __restrict__ kept, const int* __restrict__ lengths, T* __restrict__ out,
                       int queries, int keys, int heads, int most, int is_causal, float scale) {
  using S = Sparse<T, SIZE, SLABS, STAGES>;
  SHARED(typename S::Tile, tile);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
  const int first = blockIdx.x * S::BLOCK, limit = lengths ? max(0, min(keys, lengths[blockIdx.y / heads])) : keys;
  const long long pair = blockIdx.y;
  const long long list = (pair * gridDim.x + blockIdx.x) * most;   // where its list begins

  // The distance of a position behind the first key of a block; clamped to a block, so that it fits 32 bits whatever a list contains.
  const auto behind = [](int place, int number) {
    const long long far = place - static_cast<long long>(number) * S::BLOCK;
    return static_cast<int>(far < -S::BLOCK ? -S::BLOCK : far > S::BLOCK ? S::BLOCK : far);
  };
  const auto fetch = [&](int number, int slot) {         // a block of keys and values, if there is one
    const int there = behind(limit, number);
    const long long start = (pair * keys + (there > 0 ? static_cast<long long>(number) * S::BLOCK : 0)) * SIZE;
    typename S::Stage& stage = tile.stage[slot];
    const auto copy = [&](T* to, const T* from, int row, int chunk) {   // what is not there is not read, so that its address does not matter
      copy_async(to + row * S::PITCH + chunk, from + start + row * SIZE + chunk, row < there);
    };
    if (number >= 0)
      for_each_vector<S::BLOCK, SIZE, S::THREADS>([&](int row, int chunk) {
        copy(stage.key, key, row, chunk);
        if (!IS_LATE) copy(stage.value, value, row, chunk);
      });
    commit_copies();
    if (!IS_LATE) return;
    if (number >= 0) for_each_vector<S::BLOCK, SIZE, S::THREADS>([&](int row, int chunk) { copy(stage.value, value, row, chunk); });
    commit_copies();
  };
  constexpr int GROUPS = IS_LATE ? 2 : 1;                // of copies, in which a stage comes

  for_each_vector<S::BLOCK, SIZE, S::THREADS>([&](int row, int chunk) {
    const bool is_there = first + row < queries;
    copy_async(tile.query + row * S::PITCH + chunk, is_there ? query + (pair * queries + first + row) * SIZE + chunk : query, is_there);
  });
  commit_copies();
  int ahead[STAGES - 1];                                 // numbers of the blocks of keys that are on their way; negative ones end them
#pragma unroll
  for (int n = 0; n < STAGES - 1; n++) {
    ahead[n] = n < most && (n == 0 || ahead[n == 0 ? 0 : n - 1] >= 0) ? kept[list + n] : -1;
    fetch(ahead[n], n);
  }
  const T* const own = tile.query + warp * 16 * SLABS * S::PITCH;
  unsigned left[SIZE / 32][SLABS][2][4];
  if (IS_HELD) {
    await_copies<GROUPS * (STAGES - 1)>();               // of the queries, which came first
    __syncthreads();
#pragma unroll
    for (int k = 0; k < SIZE / 32; k++) load_queries<S::PITCH>(left[k], own + k * 32);
  }

  const int own_row = warp * 16 * SLABS + group;         // of the block's 64; others of the lane's are 8 and 16 below
  const float scale_to_log2 = scale * LOG2_E;            // so that 2^x is the exponential
  float mixed[SLABS][SIZE / 8][4] = {}, highest[SLABS][2], sum[SLABS][2] = {};
#pragma unroll
  for (int s = 0; s < SLABS; s++) highest[s][0] = highest[s][1] = LOWEST;

#pragma unroll 1
  for (unsigned n = STAGES - 1; ahead[0] >= 0; n++) {    // n is the place in the list of what is fetched now
    await_copies<GROUPS * (STAGES - 2) + GROUPS - 1>();
    __syncthreads();                                     // all keys of this stage are there, and the one before it is no longer read
    const int number = ahead[0];
#pragma unroll
    for (int later = 0; later < STAGES - 2; later++) ahead[later] = ahead[later + 1];
    ahead[STAGES - 2] = ahead[STAGES - 2] >= 0 && static_cast<int>(n) < most ? kept[list + n] : -1;
    fetch(ahead[STAGES - 2], n % STAGES);
    const typename S::Stage& stage = tile.stage[(n + 1) % STAGES];

    float score[SLABS][S::TILES][4] = {};
#pragma unroll
    for (int k = 0; k < SIZE / 32; k++) {
      if (!IS_HELD) load_queries<S::PITCH>(left[k], own + k * 32);
      multiply_by_keys<S::PITCH>(score, left[k], stage.key + k * 32);
    }

    // Only at the diagonal and at the end is there anything to hide.
    const int there = behind(limit, number), seen = is_causal ? behind(first, number) : S::BLOCK;
    if (there < S::BLOCK || seen < S::BLOCK) {
#pragma unroll
      for (int s = 0; s < SLABS; s++)
#pragma unroll
        for (int t = 0; t < S::TILES; t++)
#pragma unroll
          for (int e = 0; e < 4; e++) {
            const int at = t * 8 + quad * 2 + e % 2;
            if (at >= there || at > seen + own_row + s * 16 + e / 2 * 8) score[s][t][e] = __uint_as_float(0xff800000u);   // -∞: a weight of 0 beside any other
          }
    }

#pragma unroll
    for (int s = 0; s < SLABS; s++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const float top = fmaxf(highest[s][half], highest_of_row(highest_of_lane(score[s], half)) * scale_to_log2);
        const float correction = fast_exp2(highest[s][half] - top);
        highest[s][half] = top;
#pragma unroll
        for (int d = 0; d < SIZE / 8; d++) {
          mixed[s][d][2 * half] *= correction;
          mixed[s][d][2 * half + 1] *= correction;
        }
        sum[s][half] = sum[s][half] * correction + weigh(score[s], half, scale_to_log2, top);
      }

    if (IS_LATE) {
      await_copies<GROUPS * (STAGES - 1)>();
      __syncthreads();                                   // all values of this stage are there
    }
    multiply_by_values<S::PITCH>(mixed, score, stage.value);
  }
  if (!IS_HELD) await_copies<0>();                       // of queries that an empty list leaves unread

#pragma unroll
  for (int s = 0; s < SLABS; s++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = first + own_row + s * 16 + half * 8;
      const float whole = sum_of_row(sum[s][half]);
      const float inverse = whole == 0.0f ? 0.0f : fast_reciprocal(whole);   // a query that sees nothing gets zeros
      if (row < queries) store_row(out + (pair * queries + row) * SIZE, mixed[s], half, inverse);
    }
}

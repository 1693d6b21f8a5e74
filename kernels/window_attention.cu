// Window attention (Swin): everything between the qkv projection and the output projection, in one pass over memory.
//
//   qkv (batch, height, width, 3, heads, HEAD) in image order  →  out (batch, height, width, heads, HEAD) in image order
//
// Fused: cyclic shift, partition into windows, q·kᵀ, scale, relative position bias, shift mask, softmax, ·v, reverse, shift back.
// Never in memory: the shifted image, the windows, the scores, the expanded bias, the mask.
//
// A block is one head of one window; a warp is SLABS times 16 of its queries against all of its keys, distributed as in
// attention.cuh. IS_LATE waits for values only once the weights are computed. Registers are limited so that a multiprocessor has room
// for WARPS_AT_ONCE warps, if that is not 0.
#include "attention.cuh"

template <int WINDOW, int SLABS>
struct Warps {
  static constexpr int COUNT = (WINDOW * WINDOW + 16 * SLABS - 1) / (16 * SLABS);
  static constexpr int THREADS = 32 * COUNT;
};

template <class T, int WINDOW, int HEAD, int SLABS>
struct Window {
  static constexpr int TOKENS = WINDOW * WINDOW;
  static constexpr int THREADS = Warps<WINDOW, SLABS>::THREADS;
  static constexpr int ROWS = THREADS / 2 * SLABS;       // queries and keys, padded to whole tiles
  static constexpr int TILES = (TOKENS + 7) / 8;         // of 8 keys
  static constexpr int PITCH = HEAD + 8;                 // 16 bytes more, so that eight rows of a matrix lie in eight sets of banks
  static constexpr int SPAN = 2 * WINDOW - 1;
  static constexpr int DISTANCES = SPAN * SPAN;

  static_assert(HEAD % 32 == 0 && ROWS >= TILES * 8 && ROWS % 16 == 0, "32 numbers at once; every token has its row");

  struct Tile {
    alignas(16) T query[ROWS * PITCH];
    alignas(16) T key[ROWS * PITCH];
    alignas(16) T value[ROWS * PITCH];
    alignas(16) int place[ROWS];                         // of a token among the distances: bias(i, j) is at place[i] - place[j] + CENTRE
    alignas(16) int piece[ROWS];                         // the region of a token, where the shift joined opposite edges
    int token[ROWS];                                     // a token's index in the image
    float bias[DISTANCES];
  };
};

constexpr float NEVER = -1e30f;                          // the score of a key that does not exist
constexpr float MASKED = -100.0f * LOG2_E;               // what Swin adds to the score of tokens from different regions

template <class T, int WINDOW, int HEAD, int SLABS, int IS_LATE, int WARPS_AT_ONCE>
__global__ void __launch_bounds__(Warps<WINDOW, SLABS>::THREADS, WARPS_AT_ONCE / Warps<WINDOW, SLABS>::COUNT)
window_attention(const T* __restrict__ qkv, const float* __restrict__ bias, T* __restrict__ out,
                 int height, int width, int heads, int shift_down, int shift_right, float scale) {
  using W = Window<T, WINDOW, HEAD, SLABS>;
  SHARED(typename W::Tile, tile);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
  const int head = blockIdx.x, column = blockIdx.y, down = height / WINDOW;
  const int row = blockIdx.z % static_cast<unsigned>(down);
  const bool is_last_row = row == down - 1, is_last_column = column == gridDim.y - 1;

  const auto token_of = [&](int index) {                 // where a token of the shifted window lies in the batch of images
    const int y = index / WINDOW + shift_down, x = column * WINDOW + index % WINDOW + shift_right;
    const int wrapped_y = is_last_row && y >= WINDOW ? y - height : y, wrapped_x = x >= width ? x - width : x;
    return (static_cast<int>(blockIdx.z) * WINDOW + wrapped_y) * width + wrapped_x;
  };

  const auto address_of = [&](int index, int chunk) {    // of a token's query; its key and value lie behind it. Without a
    return qkv + (static_cast<long long>(token_of(index)) * 3 * heads + head) * HEAD + chunk;   // token nothing is read
  };
  for_each_vector<W::ROWS, HEAD, W::THREADS>([&](int index, int chunk) {
    const T* const from = address_of(index, chunk);
    const bool is_there = index < W::TOKENS;
    copy_async(tile.query + index * W::PITCH + chunk, from, is_there);
    copy_async(tile.key + index * W::PITCH + chunk, from + heads * HEAD, is_there);
    if (!IS_LATE) copy_async(tile.value + index * W::PITCH + chunk, from + 2 * heads * HEAD, is_there);
  });
  commit_copies();
  if (IS_LATE) {
    for_each_vector<W::ROWS, HEAD, W::THREADS>([&](int index, int chunk) {
      copy_async(tile.value + index * W::PITCH + chunk, address_of(index, chunk) + 2 * heads * HEAD, index < W::TOKENS);
    });
    commit_copies();
  }

#pragma unroll
  for (int more = 0; more < W::ROWS; more += W::THREADS) {
    const int row = threadIdx.x + more;
    if (row >= W::ROWS) break;
    const int index = min(row, W::TOKENS - 1), y = index / WINDOW, x = index % WINDOW;
    tile.place[row] = y * W::SPAN + x;
    tile.piece[row] = (y >= WINDOW - shift_down) * 2 + (x >= WINDOW - shift_right);
    tile.token[row] = token_of(index);
  }
#pragma unroll
  for (int step = 0; step < (W::DISTANCES + W::THREADS - 1) / W::THREADS; step++) {
    const int i = threadIdx.x + step * W::THREADS;
    if (i < W::DISTANCES) tile.bias[i] = bias[head * W::DISTANCES + i] * LOG2_E;
  }
  await_copies<IS_LATE ? 1 : 0>();
  __syncthreads();

  float score[SLABS][W::TILES][4] = {};
#pragma unroll
  for (int k = 0; k < HEAD / 32; k++) {
    unsigned query[SLABS][2][4];
    load_queries<W::PITCH>(query, tile.query + warp * 16 * SLABS * W::PITCH + k * 32);
    multiply_by_keys<W::PITCH>(score, query, tile.key + k * 32);
  }

  // Scale and bias, in powers of two so that 2^x is the exponential.
  const int first_row = warp * 16 * SLABS + group;       // of the lane's; the others are 8 and 16 below
  const float scale_to_log2 = scale * LOG2_E;
  constexpr int CENTRE = (WINDOW - 1) * 2 * WINDOW;
  const float* from_row[SLABS][2];
#pragma unroll
  for (int s = 0; s < SLABS; s++)
#pragma unroll
    for (int half = 0; half < 2; half++) from_row[s][half] = tile.bias + tile.place[first_row + s * 16 + half * 8] + CENTRE;
#pragma unroll
  for (int n = 0; n < W::TILES; n++) {
    const int2 places = *reinterpret_cast<const int2*>(tile.place + n * 8 + quad * 2);
#pragma unroll
    for (int s = 0; s < SLABS; s++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const float biased = score[s][n][e] * scale_to_log2 + from_row[s][e / 2][-(e % 2 ? places.y : places.x)];
        score[s][n][e] = n * 8 + 8 <= W::TOKENS || n * 8 + quad * 2 + e % 2 < W::TOKENS ? biased : NEVER;
      }
  }
  // Only the last row of windows is divided vertically, only the last column horizontally.
  const int cuts = (is_last_row ? 2 : 0) + is_last_column;
  if ((shift_down && is_last_row) || (shift_right && is_last_column)) {
#pragma unroll
    for (int s = 0; s < SLABS; s++) {
      const int* const piece = tile.piece + first_row + s * 16;
      const int pieces[2] = {piece[0] & cuts, piece[8] & cuts};
#pragma unroll
      for (int n = 0; n < W::TILES; n++) {
        const int2 others = *reinterpret_cast<const int2*>(tile.piece + n * 8 + quad * 2);
#pragma unroll
        for (int e = 0; e < 4; e++) score[s][n][e] += pieces[e / 2] == ((e % 2 ? others.y : others.x) & cuts) ? 0.0f : MASKED;
      }
    }
  }

  float inverse[SLABS][2];
#pragma unroll
  for (int s = 0; s < SLABS; s++)
#pragma unroll
    for (int half = 0; half < 2; half++)
      inverse[s][half] = fast_reciprocal(sum_of_row(weigh(score[s], half, 1.0f, highest_of_row(highest_of_lane(score[s], half)))));

  if (IS_LATE) {
    await_copies<0>();
    __syncthreads();                                     // of values, which other threads fetched
  }
  float mixed[SLABS][HEAD / 8][4] = {};
  multiply_by_values<W::PITCH>(mixed, score, tile.value);
#pragma unroll
  for (int s = 0; s < SLABS; s++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = first_row + s * 16 + half * 8;
      if (row < W::TOKENS) store_row(out + (static_cast<long long>(tile.token[row]) * heads + head) * HEAD, mixed[s], half, inverse[s][half]);
    }
}

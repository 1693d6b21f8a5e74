// Window attention (Swin): everything between the qkv projection and the output projection, in one pass over memory.
//
//   qkv (batch, height, width, 3, heads, HEAD) in image order  →  out (batch, height, width, heads, HEAD) in image order
//
// Fused: cyclic shift, partition into windows, q·kᵀ, scale, relative position bias, shift mask, softmax, ·v, reverse, shift back.
// Never in memory: the shifted image, the windows, the scores, the expanded bias, the mask.
//
// A block is one head of one window; a warp is 16 of its queries against all of its keys; a lane holds, as mma.m16n8k16 deals
// them out, rows g and g + 8 and columns 2t, 2t + 1 of every 16×8 tile (g = lane / 4, t = lane % 4).
#include "common.cuh"

template <class T, int WINDOW, int HEAD>
struct Window {
  static constexpr int TOKENS = WINDOW * WINDOW;
  static constexpr int WARPS = (TOKENS + 15) / 16;
  static constexpr int THREADS = 32 * WARPS;
  static constexpr int ROWS = 16 * WARPS;                // queries and keys, padded to whole tiles
  static constexpr int TILES = (TOKENS + 7) / 8;         // of 8 keys
  static constexpr int PITCH = HEAD + 8;                 // 16 bytes more, so that eight rows of a matrix lie in eight sets of banks
  static constexpr int SPAN = 2 * WINDOW - 1;
  static constexpr int DISTANCES = SPAN * SPAN;

  struct Tile {
    alignas(16) T query[ROWS * PITCH];
    alignas(16) T key[ROWS * PITCH];
    alignas(16) T value[ROWS * PITCH];
    alignas(16) int place[ROWS];                         // of a token among the distances: bias(i, j) is at place[i] - place[j] + CENTRE
    alignas(16) int piece[ROWS];                         // on which side of the cuts a token lies, where the shift joined opposite edges
    int token[ROWS];                                     // a token's number in the image
    float bias[DISTANCES];
  };
};

constexpr float NEVER = -1e30f;                          // the score of a key that is not there
constexpr float MASKED = -100.0f * LOG2_E;               // what Swin adds to the score of tokens from different pieces

template <class T, int WINDOW, int HEAD>
__global__ void __launch_bounds__(Window<T, WINDOW, HEAD>::THREADS)
window_attention(const T* __restrict__ qkv, const float* __restrict__ bias, T* __restrict__ out,
                 int height, int width, int heads, int shift_down, int shift_right, float scale) {
  using W = Window<T, WINDOW, HEAD>;
  constexpr int CHUNKS = HEAD / 8;                       // of 16 bytes in a row
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

#pragma unroll
  for (int step = 0; step < W::ROWS * CHUNKS / W::THREADS; step++) {
    const int i = threadIdx.x + step * W::THREADS, index = i / CHUNKS, chunk = i % CHUNKS * 8;
    const bool is_there = index < W::TOKENS;
    const T* from = qkv + (static_cast<long long>(token_of(is_there ? index : 0)) * 3 * heads + head) * HEAD + chunk;
    copy_async(tile.query + index * W::PITCH + chunk, from, is_there);
    copy_async(tile.key + index * W::PITCH + chunk, from + heads * HEAD, is_there);
    copy_async(tile.value + index * W::PITCH + chunk, from + 2 * heads * HEAD, is_there);
  }
  commit_copies();

  if (threadIdx.x < W::ROWS) {
    const int index = min(static_cast<int>(threadIdx.x), W::TOKENS - 1), y = index / WINDOW, x = index % WINDOW;
    tile.place[threadIdx.x] = y * W::SPAN + x;
    tile.piece[threadIdx.x] = (y >= WINDOW - shift_down) * 2 + (x >= WINDOW - shift_right);
    tile.token[threadIdx.x] = token_of(index);
  }
#pragma unroll
  for (int step = 0; step < (W::DISTANCES + W::THREADS - 1) / W::THREADS; step++) {
    const int i = threadIdx.x + step * W::THREADS;
    if (i < W::DISTANCES) tile.bias[i] = bias[head * W::DISTANCES + i] * LOG2_E;
  }
  await_copies<0>();
  __syncthreads();

  // Scores: 16 queries of this warp by all keys.
  unsigned query[HEAD / 16][4];
#pragma unroll
  for (int k = 0; k < HEAD / 16; k++)
    load_matrices(query[k], tile.query + (warp * 16 + lane % 16) * W::PITCH + k * 16 + lane / 16 * 8);
  float score[W::TILES][4] = {};
#pragma unroll
  for (int n = 0; n < W::TILES; n++)
#pragma unroll
    for (int k = 0; k < HEAD / 32; k++) {
      unsigned key[4];
      load_matrices(key, tile.key + (n * 8 + lane % 8) * W::PITCH + k * 32 + lane / 8 * 8);
      multiply_add(score[n], query[2 * k], key[0], key[1], T{});
      multiply_add(score[n], query[2 * k + 1], key[2], key[3], T{});
    }

  // Scale and bias, in powers of two so that 2^x is the exponential.
  const int rows[2] = {warp * 16 + group, warp * 16 + group + 8};
  const float scale_to_log2 = scale * LOG2_E;
  constexpr int CENTRE = (WINDOW - 1) * 2 * WINDOW;
  const float* from_row[2] = {tile.bias + tile.place[rows[0]] + CENTRE, tile.bias + tile.place[rows[1]] + CENTRE};
#pragma unroll
  for (int n = 0; n < W::TILES; n++) {
    const int2 places = *reinterpret_cast<const int2*>(tile.place + n * 8 + quad * 2);
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const float biased = score[n][e] * scale_to_log2 + from_row[e / 2][-(e % 2 ? places.y : places.x)];
      score[n][e] = n * 8 + 8 <= W::TOKENS || n * 8 + quad * 2 + e % 2 < W::TOKENS ? biased : NEVER;
    }
  }
  // Only the last row of windows is cut across, only the last column down.
  const int cuts = (is_last_row ? 2 : 0) + is_last_column;
  if ((shift_down && is_last_row) || (shift_right && is_last_column)) {
    const int pieces[2] = {tile.piece[rows[0]] & cuts, tile.piece[rows[1]] & cuts};
#pragma unroll
    for (int n = 0; n < W::TILES; n++) {
      const int2 others = *reinterpret_cast<const int2*>(tile.piece + n * 8 + quad * 2);
#pragma unroll
      for (int e = 0; e < 4; e++) score[n][e] += pieces[e / 2] == ((e % 2 ? others.y : others.x) & cuts) ? 0.0f : MASKED;
    }
  }

  // Softmax over a row, which four lanes hold together.
  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float highest = NEVER, sum = 0.0f;
#pragma unroll
    for (int n = 0; n < W::TILES; n++) highest = fmaxf(highest, fmaxf(score[n][2 * half], score[n][2 * half + 1]));
    highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
    highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
#pragma unroll
    for (int n = 0; n < W::TILES; n++)
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; e++) {
        score[n][e] = fast_exp2(score[n][e] - highest);
        sum += score[n][e];
      }
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    inverse[half] = fast_reciprocal(sum);
  }

  // Weights times values; the sums of one product are laid out as the left side of the next.
  float mixed[HEAD / 8][4] = {};
#pragma unroll
  for (int k = 0; k < (W::TILES + 1) / 2; k++) {
    const bool has_second = 2 * k + 1 < W::TILES;
    const float(&first)[4] = score[2 * k];
    const float(&second)[4] = score[has_second ? 2 * k + 1 : 2 * k];
    const unsigned weights[4] = {pack(first[0], first[1], T{}), pack(first[2], first[3], T{}),
                                 has_second ? pack(second[0], second[1], T{}) : 0u, has_second ? pack(second[2], second[3], T{}) : 0u};
#pragma unroll
    for (int d = 0; d < HEAD / 16; d++) {
      unsigned value[4];
      load_matrices_transposed(value, tile.value + (k * 16 + lane % 16) * W::PITCH + d * 16 + lane / 16 * 8);
      multiply_add(mixed[2 * d], weights, value[0], value[1], T{});
      multiply_add(mixed[2 * d + 1], weights, value[2], value[3], T{});
    }
  }
#pragma unroll
  for (int half = 0; half < 2; half++)
    if (rows[half] < W::TOKENS) {
      T* to = out + (static_cast<long long>(tile.token[rows[half]]) * heads + head) * HEAD + quad * 2;
#pragma unroll
      for (int d = 0; d < HEAD / 8; d++)
        *reinterpret_cast<unsigned*>(to + d * 8) =
            pack(mixed[d][2 * half] * inverse[half], mixed[d][2 * half + 1] * inverse[half], T{});
    }
}

// A linear layer, or a 1×1 convolution channels last, on int8, in one pass over memory.
//
//   made[row, c] = scales[c] · Σ (x[row, k] - zero) · weight[c, k] + bias[c] + (residual[row, c] - residual_zero) · residual_scale
//   out[row, c] = activation(made) as a float, or round(activation(made) / scale) + zero of the output, clamped to eight bits
//
// Never in memory: the integer sums, four times the output's bytes, and what is computed from them. Sums are exact; `sums` are those
// of each row of weight, which correct for the zero point of x.
//
// A block is 128 rows by COLUMNS columns; its eight warps are arranged four down and two across, each 32 rows by half the columns. x
// and weight are copied 64 values at a time into a ring of three stages. The residual is copied with them, into the tile from which
// quantized outputs are later stored in whole vectors; floats are stored from registers.
#include "quantized.cuh"

template <int COLUMNS>
struct PointwiseInt8 {
  static constexpr int ROWS = 128, DEPTH = 64, STAGES = 3, THREADS = 256;
  static constexpr int PITCH = DEPTH + 16;               // 80 bytes: eight rows of a matrix lie in eight sets of banks
  static constexpr int OUT_PITCH = COLUMNS + 16;
  static constexpr int TILES = COLUMNS / 16;             // of 8 columns, that a warp has

  struct Stage {
    alignas(16) unsigned char x[ROWS * PITCH];
    alignas(16) unsigned char weight[COLUMNS * PITCH];
  };
  struct Tile {
    Stage stage[STAGES];
    alignas(16) unsigned char out[ROWS * OUT_PITCH];     // first the residual or zeros, then the quantized output, in place
    alignas(16) float scale[COLUMNS];
    alignas(16) float bias[COLUMNS];
    alignas(16) int shift[COLUMNS];
  };
};

template <class STEP, class OUT, int COLUMNS, int ACTIVATION>
__global__ void __launch_bounds__(256, 2)
pointwise_int8(const STEP* __restrict__ x, const int8* __restrict__ weight, const float* __restrict__ scales,
               const int* __restrict__ sums, const float* __restrict__ bias, const STEP* __restrict__ residual,
               OUT* __restrict__ out, int rows, int depth, int columns, int zero, float residual_scale, int residual_zero,
               float inverse, float low, float high, int out_zero) {
  using P = PointwiseInt8<COLUMNS>;
  using U = Units<OUT, ACTIVATION>;
  SHARED(typename P::Tile, tile);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
  // Blocks that share rows of x are neighbours in time: memory provides them once, L2 afterwards.
  const unsigned across = (columns + COLUMNS - 1) / COLUMNS;
  const int first_column = blockIdx.x % across * COLUMNS;
  const long long first_row = static_cast<long long>(blockIdx.x / across) * P::ROWS;
  const int rows_left = static_cast<int>(min(static_cast<long long>(P::ROWS), rows - first_row)), columns_left = columns - first_column;

  const int line = threadIdx.x / 4, chunk = threadIdx.x % 4 * 16;
  const STEP* x_from = x + (first_row + line) * depth + chunk;
  const int8* weight_from = weight + static_cast<long long>(first_column + line) * depth + chunk;
  const auto fetch = [&](int step, int slot) {           // 64 lines at once, 16 bytes a thread
    typename P::Stage& stage = tile.stage[slot];
    const int start = step * P::DEPTH;
    const bool is_inside = start + chunk < depth;
#pragma unroll
    for (int more = 0; more < P::ROWS; more += 64) {
      const bool is_there = is_inside && line + more < rows_left;
      copy_async(stage.x + (line + more) * P::PITCH + chunk, is_there ? x_from + static_cast<long long>(more) * depth + start : x, is_there);
    }
#pragma unroll
    for (int more = 0; more < COLUMNS; more += 64) {
      const bool is_there = is_inside && line + more < columns_left;
      copy_async(stage.weight + (line + more) * P::PITCH + chunk,
                 is_there ? weight_from + static_cast<long long>(more) * depth + start : weight, is_there);
    }
  };
  // The tile of the output, a few rows at once, 16 bytes a thread.
  constexpr int VECTORS = COLUMNS / 16, AT_ONCE = P::THREADS / VECTORS;
  const int place_row = threadIdx.x / VECTORS, place_column = threadIdx.x % VECTORS * 16;
  const int rows_of_mine = place_column < columns_left ? rows_left : 0;
  const long long place = (first_row + place_row) * columns + first_column + place_column;

  const int steps = (depth + P::DEPTH - 1) / P::DEPTH;
  fetch(0, 0);
  commit_copies();
  fetch(1, 1);
#pragma unroll
  for (int more = 0; more < P::ROWS; more += AT_ONCE) {
    const bool is_there = residual && place_row + more < rows_of_mine;
    copy_async(tile.out + (place_row + more) * P::OUT_PITCH + place_column,
               is_there ? residual + place + static_cast<long long>(more) * columns : x, is_there);
  }
  commit_copies();

  if (threadIdx.x < COLUMNS) {
    const int column = first_column + threadIdx.x;
    const bool is_there = column < columns;
    tile.scale[threadIdx.x] = is_there ? scales[column] * U::before(inverse) : 0.0f;
    tile.bias[threadIdx.x] = bias && is_there ? bias[column] * U::before(inverse) : 0.0f;
    tile.shift[threadIdx.x] = sums && is_there ? -zero * sums[column] : 0;
  }

  const int top = warp / 2 * 32, left = warp % 2 * (COLUMNS / 2);
  int sum[2][P::TILES][4] = {};
  int slot = 0;
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    await_copies<P::STAGES - 2>();
    __syncthreads();                                     // all copies of this stage are there, and the one before it is no longer read
    const int last = slot == 0 ? P::STAGES - 1 : slot - 1;
    if (step + P::STAGES - 1 < steps) fetch(step + P::STAGES - 1, last);
    commit_copies();

    const typename P::Stage& stage = tile.stage[slot];
#pragma unroll
    for (int k = 0; k < P::DEPTH; k += 32) {
      unsigned part[2][4];
#pragma unroll
      for (int m = 0; m < 2; m++) load_matrices(part[m], stage.x + (top + m * 16 + lane % 16) * P::PITCH + k + lane / 16 * 16);
#pragma unroll
      for (int n = 0; n < P::TILES; n += 2) {
        unsigned column[4];                              // two tiles of 8 columns, 32 deep
        load_matrices(column, stage.weight + (left + n * 8 + lane / 16 * 8 + lane % 8) * P::PITCH + k + lane / 8 % 2 * 16);
#pragma unroll
        for (int m = 0; m < 2; m++) {
          multiply_add(sum[m][n], part[m], column[0], column[1], STEP{});
          multiply_add(sum[m][n + 1], part[m], column[2], column[3], STEP{});
        }
      }
    }
    slot = slot == P::STAGES - 1 ? 0 : slot + 1;
  }
  await_copies<0>();
  __syncthreads();                                       // of residual, scales and bias, which other threads fetched

  const Rounding rounding(low, high, out_zero);
  const float base = ABOVE + residual_zero, worth = residual_scale * U::before(inverse), unit = U::after(inverse);
#pragma unroll
  for (int n = 0; n < P::TILES; n++) {
    const int column = left + n * 8 + quad * 2;
    const float2 scale = *reinterpret_cast<const float2*>(tile.scale + column);
    const float2 offset = *reinterpret_cast<const float2*>(tile.bias + column);
    const int2 shift = *reinterpret_cast<const int2*>(tile.shift + column);
#pragma unroll
    for (int eight = 0; eight < 4; eight++) {            // rows g, g + 8, g + 16 and g + 24 of the warp's
      const int row = top + eight * 8 + group;
      unsigned short& pair = *reinterpret_cast<unsigned short*>(tile.out + row * P::OUT_PITCH + column);
      const unsigned more = turned(pair, STEP{});
      const int(&made)[4] = sum[eight / 2][n];
      float one = fmaf(static_cast<float>(made[eight % 2 * 2] + shift.x), scale.x, offset.x);
      float two = fmaf(static_cast<float>(made[eight % 2 * 2 + 1] + shift.y), scale.y, offset.y);
      one = activate<ACTIVATION>(fmaf(above(more, 0) - base, worth, one));
      two = activate<ACTIVATION>(fmaf(above(more, 1) - base, worth, two));
      if constexpr (U::MAKES_STEPS)
        pair = static_cast<unsigned short>(turned(rounding.steps(one * unit, two * unit), STEP{}));
      else if (row < rows_left && column < columns_left)
        store(out + (first_row + row) * columns + first_column + column, one, two);
    }
  }
  if constexpr (U::MAKES_STEPS) {
    __syncthreads();
#pragma unroll
    for (int more = 0; more < P::ROWS; more += AT_ONCE)
      if (place_row + more < rows_of_mine)
        *reinterpret_cast<uint4*>(out + place + static_cast<long long>(more) * columns) =
            *reinterpret_cast<const uint4*>(tile.out + (place_row + more) * P::OUT_PITCH + place_column);
  }
}

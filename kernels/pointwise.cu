// A linear layer, or a 1×1 convolution channels last, with its bias, residual and activation, in one pass over memory.
//
//   out[row, c] = activation(bias[c] + Σ x[row, k] · weight[c, k] + residual[row, c])
//
// Never in memory: the product before its bias, its sum with the residual, and that sum before its activation.
//
// A block is ROWS rows by COLUMNS columns; its eight warps are arranged in DOWN rows. x and weight are copied DEPTH elements at a time
// into a ring of STAGES, so that all stages but one are being copied while that one is multiplied. The residual is copied with them,
// into the tile from which the output is later stored in whole vectors. Registers are limited so that a multiprocessor has room for
// BLOCKS blocks.
#include "activation.cuh"

template <class T, int ROWS, int COLUMNS, int DEPTH, int STAGES, int DOWN>
struct Pointwise {
  static constexpr int THREADS = 256, ACROSS = THREADS / 32 / DOWN;
  static constexpr int PITCH = DEPTH + 8;                // 16 bytes more, so that eight rows of a matrix lie in eight sets of banks
  static constexpr int OUT_PITCH = COLUMNS + 8;
  static constexpr int SLABS = ROWS / DOWN / 16;         // of 16 rows, that a warp has
  static constexpr int TILES = COLUMNS / ACROSS / 8;     // of 8 columns, that a warp has
  static constexpr int CHUNKS = DEPTH / 8, LINES = THREADS / CHUNKS;           // of 16 bytes in a line of a stage; lines at once
  static constexpr int VECTORS = COLUMNS / 8, AT_ONCE = THREADS / VECTORS;     // the same of the output

  static_assert(ROWS % (16 * DOWN) == 0 && COLUMNS % (16 * ACROSS) == 0 && DEPTH % 16 == 0, "a warp has whole matrices, columns in pairs");
  static_assert(ROWS % LINES == 0 && COLUMNS % LINES == 0 && ROWS % AT_ONCE == 0, "all threads fetch as much");
  static_assert(STAGES >= 2 && COLUMNS <= THREADS, "one stage comes while another is multiplied; a thread has one bias");

  struct Stage {
    alignas(16) T x[ROWS * PITCH];
    alignas(16) T weight[COLUMNS * PITCH];
  };
  struct Tile {
    Stage stage[STAGES];
    alignas(16) T out[ROWS * OUT_PITCH];                 // first the residual or zeros, then the output, in place
    float bias[COLUMNS];
  };
};

template <class T, int ACTIVATION, int ROWS, int COLUMNS, int DEPTH, int STAGES, int DOWN, int BLOCKS>
__global__ void __launch_bounds__(256, BLOCKS)
pointwise(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, const T* __restrict__ residual,
          T* __restrict__ out, int rows, int depth, int columns) {
  using P = Pointwise<T, ROWS, COLUMNS, DEPTH, STAGES, DOWN>;
  SHARED(typename P::Tile, tile);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
  // Blocks that share rows of x are neighbours in time: memory provides them once, L2 afterwards.
  const unsigned across = (columns + COLUMNS - 1) / COLUMNS;
  const int first_column = blockIdx.x % across * COLUMNS;
  const long long first_row = static_cast<long long>(blockIdx.x / across) * ROWS;
  const int rows_left = static_cast<int>(min(static_cast<long long>(ROWS), rows - first_row)), columns_left = columns - first_column;

  const int line = threadIdx.x / P::CHUNKS, chunk = threadIdx.x % P::CHUNKS * 8;
  const T* x_from = x + (first_row + line) * depth + chunk;
  const T* weight_from = weight + static_cast<long long>(first_column + line) * depth + chunk;
  const auto fetch = [&](int step, int slot) {           // some lines at once, 16 bytes a thread
    typename P::Stage& stage = tile.stage[slot];
    const int start = step * DEPTH;
    const bool is_inside = start + chunk < depth;
#pragma unroll
    for (int more = 0; more < ROWS; more += P::LINES) {
      const bool is_there = is_inside && line + more < rows_left;
      copy_async(stage.x + (line + more) * P::PITCH + chunk, is_there ? x_from + more * depth + start : x, is_there);
    }
#pragma unroll
    for (int more = 0; more < COLUMNS; more += P::LINES) {
      const bool is_there = is_inside && line + more < columns_left;
      copy_async(stage.weight + (line + more) * P::PITCH + chunk, is_there ? weight_from + more * depth + start : weight, is_there);
    }
  };
  // The tile of the output, a few rows at once, 16 bytes a thread.
  const int place_row = threadIdx.x / P::VECTORS, place_column = threadIdx.x % P::VECTORS * 8;
  const int rows_of_mine = place_column < columns_left ? rows_left : 0;
  const long long place = (first_row + place_row) * columns + first_column + place_column;

  const int steps = (depth + DEPTH - 1) / DEPTH;
#pragma unroll
  for (int stage = 0; stage < STAGES - 2; stage++) {
    fetch(stage, stage);
    commit_copies();
  }
  fetch(STAGES - 2, STAGES - 2);
#pragma unroll
  for (int more = 0; more < ROWS; more += P::AT_ONCE) {
    const bool is_there = residual && place_row + more < rows_of_mine;
    copy_async(tile.out + (place_row + more) * P::OUT_PITCH + place_column, is_there ? residual + place + more * columns : x, is_there);
  }
  commit_copies();

  if (threadIdx.x < COLUMNS) {
    const bool is_there = bias && static_cast<int>(threadIdx.x) < columns_left;
    tile.bias[threadIdx.x] = is_there ? widen(bias[first_column + threadIdx.x].bits, T{}) : 0.0f;
  }

  const int top = warp / P::ACROSS * (P::SLABS * 16), left = warp % P::ACROSS * (P::TILES * 8);
  float sum[P::SLABS][P::TILES][4] = {};
  int slot = 0;
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    await_copies<STAGES - 2>();
    __syncthreads();                                     // all copies of this stage are there, and the one before it is no longer read
    const int last = slot == 0 ? STAGES - 1 : slot - 1;
    if (step + STAGES - 1 < steps) fetch(step + STAGES - 1, last);
    commit_copies();

    const typename P::Stage& stage = tile.stage[slot];
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
      unsigned part[P::SLABS][4];
#pragma unroll
      for (int m = 0; m < P::SLABS; m++) load_matrices(part[m], stage.x + (top + m * 16 + lane % 16) * P::PITCH + k + lane / 16 * 8);
#pragma unroll
      for (int n = 0; n < P::TILES; n += 2) {
        unsigned column[4];                              // two tiles of 8 columns, 16 deep
        load_matrices(column, stage.weight + (left + n * 8 + lane / 16 * 8 + lane % 8) * P::PITCH + k + lane / 8 % 2 * 8);
#pragma unroll
        for (int m = 0; m < P::SLABS; m++) {
          multiply_add(sum[m][n], part[m], column[0], column[1], T{});
          multiply_add(sum[m][n + 1], part[m], column[2], column[3], T{});
        }
      }
    }
    slot = slot == STAGES - 1 ? 0 : slot + 1;
  }
  await_copies<0>();
  __syncthreads();                                       // of residual and bias, which other threads fetched

#pragma unroll
  for (int n = 0; n < P::TILES; n++) {
    const int column = left + n * 8 + quad * 2;
    const float2 offset = *reinterpret_cast<const float2*>(tile.bias + column);
#pragma unroll
    for (int eight = 0; eight < 2 * P::SLABS; eight++) { // rows g, g + 8, g + 16 … of the warp's
      unsigned& pair = *reinterpret_cast<unsigned*>(tile.out + (top + eight * 8 + group) * P::OUT_PITCH + column);
      const float(&made)[4] = sum[eight / 2][n];
      const float2 more = unpack(pair, T{});
      pair = pack(activate<ACTIVATION>(made[eight % 2 * 2] + offset.x + more.x),
                  activate<ACTIVATION>(made[eight % 2 * 2 + 1] + offset.y + more.y), T{});
    }
  }
  __syncthreads();
#pragma unroll
  for (int more = 0; more < ROWS; more += P::AT_ONCE)
    if (place_row + more < rows_of_mine)
      *reinterpret_cast<uint4*>(out + place + more * columns) =
          *reinterpret_cast<const uint4*>(tile.out + (place_row + more) * P::OUT_PITCH + place_column);
}

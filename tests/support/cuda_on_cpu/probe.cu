// One kernel for each word of common.cuh that a CPU and a GPU each have their own half of, so that both can be asked.
#include "common.cuh"

template <class T>
__global__ void probe_product(const unsigned* left, const unsigned* right, float* sum) {
  const int lane = threadIdx.x;
  unsigned mine[4];
  for (int i = 0; i < 4; i++) mine[i] = left[lane * 4 + i];
  float out[4] = {1.0f, 2.0f, 3.0f, 4.0f};
  multiply_add(out, mine, right[lane * 2], right[lane * 2 + 1], T{});
  for (int i = 0; i < 4; i++) sum[lane * 4 + i] = out[i];
}

template <class T>
__global__ void probe_whole_product(const unsigned* left, const unsigned* right, int* sum) {
  const int lane = threadIdx.x;
  unsigned mine[4];
  for (int i = 0; i < 4; i++) mine[i] = left[lane * 4 + i];
  int out[4] = {3, 0, 0, 0};
  multiply_add(out, mine, right[lane * 2], right[lane * 2 + 1], T{});
  for (int i = 0; i < 4; i++) sum[lane * 4 + i] = out[i];
}

// Four products of a lane, and bytes of two words in another order.
template <class T>
__global__ void probe_bytes(const unsigned* left, const unsigned* right, int* sum, unsigned* mixed) {
  const int lane = threadIdx.x;
  sum[lane] = dot(lane, left[lane], right[lane], T{});
  mixed[lane] = __byte_perm(left[lane], right[lane], (0x7640 + lane % 4 * 0x1111) & 0x7777);
}

struct Matrices { alignas(16) unsigned words[128]; };

// Brought in by asynchronous copies, handed out as rows or as columns.
template <bool IS_TRANSPOSED>
__global__ void probe_matrices(const unsigned* words, unsigned* out) {
  SHARED(Matrices, tile);
  const int lane = threadIdx.x;
  copy_async(tile.words + lane * 4, words + lane * 4, lane != 5);  // a row of zeros
  commit_copies();
  await_copies<0>();
  __syncthreads();
  unsigned parts[4];
  if (IS_TRANSPOSED) load_matrices_transposed(parts, tile.words + lane * 4);
  else load_matrices(parts, tile.words + lane * 4);
  for (int i = 0; i < 4; i++) out[lane * 4 + i] = parts[i];
}

template <int LANES>
__global__ void probe_lanes(unsigned* out) {
  const unsigned lane = threadIdx.x;
  out[lane] = __shfl_xor_sync(~0u, lane, 5);
  out[32 + lane] = __shfl_down_sync(~0u, lane, 3, LANES);
  out[64 + lane] = __shfl_up_sync(~0u, lane, 3, LANES);
  out[96 + lane] = __shfl_sync(~0u, lane, 7, LANES);
  out[128 + lane] = __ballot_sync(~0u, lane % 3 == 0);
}

template <class T>
__global__ void probe_numbers(const float* numbers, unsigned* packed, float* low, float* high, float* power, float* inverse) {
  const int lane = threadIdx.x;
  packed[lane] = pack(numbers[2 * lane], numbers[2 * lane + 1], T{});
  const float2 both = unpack(packed[lane], T{});
  low[lane] = both.x;
  high[lane] = both.y;
  power[lane] = fast_exp2(numbers[lane]);
  inverse[lane] = fast_reciprocal(numbers[lane]);
}

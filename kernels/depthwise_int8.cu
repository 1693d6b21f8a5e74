// Depthwise convolution on int8, channels last, with its bias, activation and residual, in one pass.
//
//   made[n, y, x, c] = activation(bias[c] + scales[c] · Σ (x[n, y·STRIDE + dy - padding, …, c] - zero) · weight[c, dy, dx])
//                      + (residual[n, y, x, c] - residual_zero) · residual_scale
//   out = made as a float, or round(made / scale) + zero of the output, clamped to eight bits
//
// Sums are exact; `sums` are those of each channel's weights, which correct for the zero point of x. Padding represents zero, so
// that its quantized value is the zero point.
//
// One instruction multiplies four bytes of a word by four weights and adds them up. Channels last has four channels of a pixel in a
// word, so each thread transposes what it copied: four pixels of a channel. Then four taps of a line are one instruction; where a
// window does not begin with a word, the weights are shifted, not the pixels.
//
// A block is 8×8 pixels of the output and 64 channels, half a warp a row of 8 pixels, a lane four channels of each.
#include "quantized.cuh"

template <int KERNEL, int STRIDE>
struct DepthwiseInt8 {
  static constexpr int SIDE = 8, CHANNELS = 64, LANES = CHANNELS / 4, THREADS = LANES * SIDE;
  static constexpr int REACH = (SIDE - 1) * STRIDE + KERNEL;   // pixels of the input that 8 of the output read
  static constexpr int WORDS = (REACH + 3) / 4;                // of four of them
  static constexpr int TAPS = (KERNEL + 3) / 4;                // words of four weights in a line
  static constexpr int FOUR = 4 * CHANNELS;                    // bytes of four pixels

  struct Tile {
    alignas(16) unsigned char pixels[REACH * WORDS * FOUR];
    alignas(16) unsigned weights[KERNEL * TAPS * CHANNELS];
  };
};

// Four words of four bytes, transposed.
DEVICE uint4 turn_over(unsigned a, unsigned b, unsigned c, unsigned d) {
  const unsigned ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
  const unsigned cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
  return make_uint4(__byte_perm(ab_low, cd_low, 0x5410), __byte_perm(ab_low, cd_low, 0x7632),
                    __byte_perm(ab_high, cd_high, 0x5410), __byte_perm(ab_high, cd_high, 0x7632));
}

template <class STEP, class OUT, int KERNEL, int STRIDE, int ACTIVATION>
__global__ void __launch_bounds__(128)
depthwise_int8(const STEP* __restrict__ x, const int8* __restrict__ weight, const float* __restrict__ scales,
               const int* __restrict__ sums, const float* __restrict__ bias, const STEP* __restrict__ residual,
               OUT* __restrict__ out, int channels, int height, int width, int out_height, int out_width, int padding, int zero,
               float residual_scale, int residual_zero, float inverse, float low, float high, int out_zero) {
  using D = DepthwiseInt8<KERNEL, STRIDE>;
  using U = Units<OUT, ACTIVATION>;
  SHARED(typename D::Tile, tile);

  const int left = blockIdx.x * D::SIDE, top = blockIdx.y * D::SIDE;
  const unsigned blocks = (channels + D::CHANNELS - 1) / D::CHANNELS;   // of channels
  const long long image = blockIdx.z / blocks;
  const int first_channel = blockIdx.z % blocks * D::CHANNELS;

  // A thread copies 16 channels of four neighbours, and transposes what it copied itself.
  constexpr int PARTS = D::REACH * D::WORDS * 4;
  const STEP* in = x + image * height * width * channels + first_channel;
  const unsigned zeros = (zero & 255) * 0x01010101u;
  for (int i = threadIdx.x; i < PARTS; i += D::THREADS) {
    const int chunk = i % 4 * 16, first = i / 4 % D::WORDS * 4, row = top * STRIDE + i / (4 * D::WORDS) - padding;
    const bool has_row = first_channel + chunk < channels && row >= 0 && row < height;
    const int start = left * STRIDE + first - padding;
    const STEP* from = in + (static_cast<long long>(row) * width + start) * channels + chunk;
    unsigned char* to = tile.pixels + i / 4 * D::FOUR + chunk;
#pragma unroll
    for (int p = 0; p < 4; p++, from += channels, to += D::CHANNELS) {
      if (has_row && start + p >= 0 && start + p < width && first + p < D::REACH)
        copy_async(to, from, true);
      else
        *reinterpret_cast<uint4*>(to) = make_uint4(zeros, zeros, zeros, zeros);
    }
  }
  commit_copies();
  // The channels of a lane: those whose words are adjacent after the transposition.
  const auto channel_of = [](int slot) { return slot % 4 * 16 + slot / 4 * 4; };
  for (int i = threadIdx.x; i < KERNEL * D::TAPS * D::CHANNELS; i += D::THREADS) {
    const int channel = first_channel + channel_of(i % D::CHANNELS / 4) + i % 4;
    const int tap = i / D::CHANNELS % D::TAPS * 4, dy = i / D::CHANNELS / D::TAPS;
    const int8* from = weight + static_cast<long long>(channel) * (KERNEL * KERNEL) + dy * KERNEL + tap;
    unsigned word = 0;
#pragma unroll
    for (int b = 0; b < 4; b++)
      if (channel < channels && tap + b < KERNEL) word |= static_cast<unsigned>(static_cast<unsigned char>(from[b].bits)) << 8 * b;
    tile.weights[i] = word;
  }
  await_copies<0>();
  for (int i = threadIdx.x; i < PARTS; i += D::THREADS) {
    uint4* at = reinterpret_cast<uint4*>(tile.pixels + i / 4 * D::FOUR + i % 4 * 16);
    constexpr int NEXT = D::CHANNELS / 16;
    const uint4 a = at[0], b = at[NEXT], c = at[2 * NEXT], d = at[3 * NEXT];
    at[0] = turn_over(a.x, b.x, c.x, d.x);
    at[NEXT] = turn_over(a.y, b.y, c.y, d.y);
    at[2 * NEXT] = turn_over(a.z, b.z, c.z, d.z);
    at[3 * NEXT] = turn_over(a.w, b.w, c.w, d.w);
  }
  __syncthreads();

  const int slot = threadIdx.x % D::LANES, line = threadIdx.x / D::LANES;
  int sum[D::SIDE][4] = {};
#pragma unroll 1
  for (int dy = 0; dy < KERNEL; dy++) {
    unsigned pixels[D::WORDS][4], weights[D::TAPS + 2][4] = {};        // zeros before and after
#pragma unroll
    for (int w = 0; w < D::WORDS; w++)
      *reinterpret_cast<uint4*>(pixels[w]) =
          *reinterpret_cast<const uint4*>(tile.pixels + ((line * STRIDE + dy) * D::WORDS + w) * D::FOUR + slot * 16);
#pragma unroll
    for (int w = 0; w < D::TAPS; w++)
      *reinterpret_cast<uint4*>(weights[w + 1]) =
          *reinterpret_cast<const uint4*>(tile.weights + (dy * D::TAPS + w) * D::CHANNELS + slot * 4);
#pragma unroll
    for (int late = 0; late < 4; late += STRIDE)         // by how many pixels a window begins after a word
#pragma unroll
      for (int w = 0; w < (late + KERNEL + 3) / 4; w++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
          const unsigned moved = __byte_perm(weights[w][c], weights[w + 1][c], 0x7654 - 0x1111 * late);
#pragma unroll
          for (int o = 0; o < D::SIDE; o++)
            if (o * STRIDE % 4 == late) sum[o][c] = dot(sum[o][c], pixels[o * STRIDE / 4 + w][c], moved, STEP{});
        }
  }

  const int channel = first_channel + channel_of(slot), row = top + line;
  if (channel >= channels || row >= out_height) return;
  alignas(16) float scale[4], offset[4] = {};
  alignas(16) int shift[4] = {};
  *reinterpret_cast<float4*>(scale) = *reinterpret_cast<const float4*>(scales + channel);
  if (bias) *reinterpret_cast<float4*>(offset) = *reinterpret_cast<const float4*>(bias + channel);
  if (sums) *reinterpret_cast<int4*>(shift) = *reinterpret_cast<const int4*>(sums + channel);
#pragma unroll
  for (int c = 0; c < 4; c++) {
    scale[c] *= U::before(inverse);
    offset[c] *= U::before(inverse);
    shift[c] *= -zero;
  }
  const Rounding rounding(low, high, out_zero);
  const float base = ABOVE + residual_zero, worth = residual_scale * U::before(inverse), unit = U::after(inverse);
  const long long start = ((image * out_height + row) * out_width + left) * channels + channel;
#pragma unroll
  for (int o = 0; o < D::SIDE; o++)
    if (left + o < out_width) {
      const int at = o * channels;
      float made[4];
#pragma unroll
      for (int c = 0; c < 4; c++) made[c] = activate<ACTIVATION>(fmaf(static_cast<float>(sum[o][c] + shift[c]), scale[c], offset[c]));
      if (residual) {
        const unsigned more = turned(*reinterpret_cast<const unsigned*>(residual + start + at), STEP{});
#pragma unroll
        for (int c = 0; c < 4; c++) made[c] = fmaf(above(more, c) - base, worth, made[c]);
      }
      if constexpr (sizeof(OUT) == 1) {
        const unsigned four = rounding.steps(made[0] * unit, made[1] * unit, made[2] * unit, made[3] * unit);
        *reinterpret_cast<unsigned*>(out + start + at) = turned(four, STEP{});
      } else {
        store(out + start + at, made[0], made[1]);
        store(out + start + at + 2, made[2], made[3]);
      }
    }
}

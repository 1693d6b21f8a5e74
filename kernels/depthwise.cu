// Depthwise convolution, bias, activation and residual, channels last, in one pass over memory.
//
//   out[n, y, x, c] = activation(bias[c] + Σ x[n, y·STRIDE + dy - padding, x·STRIDE + dx - padding, c] · weight[c, dy, dx]) + residual[n, y, x, c]
//
// Never in memory: the convolution before its bias, its activation and its sum with the residual. A batch-norm after the
// convolution has been folded into weight and bias before (the step `fold` does it, exactly).
//
// A block is 8×8 pixels of the output and 64 channels; a warp is a row of 8 pixels, a lane two channels of each: what a warp
// reads and writes at once is 128 bytes in a row, in global as in shared memory. Sums are kept in fp32.
#include "activation.cuh"

template <class T, int KERNEL, int STRIDE>
struct Depthwise {
  static constexpr int SIDE = 8, CHANNELS = 64, THREADS = 32 * SIDE;
  static constexpr int REACH = (SIDE - 1) * STRIDE + KERNEL;   // pixels of the input that 8 of the output look at
  static constexpr int TAPS = KERNEL * KERNEL;
  static constexpr int PITCH = CHANNELS + 2;                   // weights are turned over on their way in; even, for pairs

  struct Tile {
    alignas(16) T pixels[REACH * REACH * CHANNELS];
    alignas(16) float weights[TAPS * PITCH];
  };
};

template <class T, int KERNEL, int STRIDE, int ACTIVATION>
__global__ void __launch_bounds__(256)
depthwise(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, const T* __restrict__ residual,
          T* __restrict__ out, int channels, int height, int width, int out_height, int out_width, int padding) {
  using D = Depthwise<T, KERNEL, STRIDE>;
  SHARED(typename D::Tile, tile);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int left = blockIdx.x * D::SIDE, top = blockIdx.y * D::SIDE;
  const unsigned blocks = (channels + D::CHANNELS - 1) / D::CHANNELS;   // of channels
  const long long image = blockIdx.z / blocks;
  const int first_channel = blockIdx.z % blocks * D::CHANNELS;

  const T* in = x + image * height * width * channels;
  // A warp fetches whole lines: four pixels of 64 channels at once, 16 bytes a lane.
  const int chunk = lane % 8 * 8;
  const bool has_channels = first_channel + chunk < channels;
  for (int line = warp; line < D::REACH; line += D::SIDE) {
    const int row = top * STRIDE + line - padding, first = left * STRIDE - padding;
    const bool has_row = has_channels && row >= 0 && row < height;
    const T* from = in + static_cast<long long>(has_row ? row : 0) * width * channels + first_channel + chunk;
#pragma unroll
    for (int step = 0; step < (D::REACH + 3) / 4; step++) {
      const int pixel = lane / 8 + step * 4, column = first + pixel;
      const bool is_there = has_row && column >= 0 && column < width;
      if (pixel < D::REACH)
        copy_async(tile.pixels + (line * D::REACH + pixel) * D::CHANNELS + chunk,
                   is_there ? from + static_cast<long long>(column) * channels : in, is_there);
    }
  }
  commit_copies();
  for (int i = threadIdx.x; i < D::TAPS * D::CHANNELS; i += D::THREADS) {
    const int channel = i / D::TAPS, tap = i % D::TAPS;
    const bool is_there = first_channel + channel < channels;
    tile.weights[tap * D::PITCH + channel] = is_there ? widen(weight[first_channel * D::TAPS + i].bits, T{}) : 0.0f;
  }
  await_copies<0>();
  __syncthreads();

  float2 sum[D::SIDE] = {};
#pragma unroll 1
  for (int dy = 0; dy < KERNEL; dy++) {
    const unsigned* line = reinterpret_cast<const unsigned*>(tile.pixels + (warp * STRIDE + dy) * D::REACH * D::CHANNELS) + lane;
    float2 tap[KERNEL];
#pragma unroll
    for (int dx = 0; dx < KERNEL; dx++)
      tap[dx] = *reinterpret_cast<const float2*>(tile.weights + (dy * KERNEL + dx) * D::PITCH + lane * 2);
    // Each pixel of the line is read once and goes into every output that it reaches.
#pragma unroll
    for (int column = 0; column < D::REACH; column++) {
      const float2 pixel = unpack(line[column * (D::CHANNELS / 2)], T{});
#pragma unroll
      for (int o = 0; o < D::SIDE; o++) {
        const int dx = column - o * STRIDE;
        if (dx >= 0 && dx < KERNEL) {
          sum[o].x += pixel.x * tap[dx].x;
          sum[o].y += pixel.y * tap[dx].y;
        }
      }
    }
  }

  const int channel = first_channel + lane * 2, row = top + warp;
  if (channel >= channels || row >= out_height) return;
  const float2 offset = bias ? unpack(*reinterpret_cast<const unsigned*>(bias + channel), T{}) : make_float2(0.0f, 0.0f);
  const long long start = ((image * out_height + row) * out_width + left) * channels + channel;
#pragma unroll
  for (int o = 0; o < D::SIDE; o++)
    if (left + o < out_width) {
      const int at = o * channels;
      float2 made = make_float2(activate<ACTIVATION>(sum[o].x + offset.x), activate<ACTIVATION>(sum[o].y + offset.y));
      if (residual) {
        const float2 more = unpack(*reinterpret_cast<const unsigned*>(residual + start + at), T{});
        made.x += more.x;
        made.y += more.y;
      }
      *reinterpret_cast<unsigned*>(out + start + at) = pack(made.x, made.y, T{});
    }
}

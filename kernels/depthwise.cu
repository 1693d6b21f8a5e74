// Depthwise convolution, bias, activation and residual, channels last, in one pass over memory.
//
//   out[n, y, x, c] = activation(bias[c] + Σ x[n, y·STRIDE + dy - padding, x·STRIDE + dx - padding, c] · weight[c, dy, dx]) + residual[n, y, x, c]
//
// Never in memory: the convolution before its bias, its activation and its sum with the residual. A batch-norm after the
// convolution has been folded into weight and bias beforehand (exactly, by the step `fold`).
//
// A block is HEIGHT×WIDTH pixels of the output and 64 or 32 channels. A lane has two channels of one or two whole lines, a team of
// 32 or 16 lanes has all channels: a team reads and writes 128 or 64 consecutive bytes at once, in global as in shared memory.
// Sums are kept in fp32.
#include "activation.cuh"

template <class T, int KERNEL, int STRIDE, int WIDTH, int HEIGHT, int CHANNELS, int LINES>
struct Depthwise {
  static constexpr int TEAM = CHANNELS / 2, THREADS = HEIGHT / LINES * TEAM, WARPS = THREADS / 32;
  static constexpr int REACH = (WIDTH - 1) * STRIDE + KERNEL;      // pixels of the input that a line of the output reads
  static constexpr int DEPTH = (HEIGHT - 1) * STRIDE + KERNEL;     // lines of the input that a block reads
  static constexpr int TAPS = KERNEL * KERNEL;
  static constexpr int PITCH = CHANNELS + 2;                       // weights are transposed when loaded; even, for pairs

  static_assert(CHANNELS == 32 || CHANNELS == 64, "a team is a warp or half of one");
  static_assert(LINES == 1 || LINES == 2, "two lines of the output share all of the input's but the first and the last");
  static_assert(HEIGHT % LINES == 0 && THREADS % 32 == 0 && THREADS <= 1024, "a block is whole warps");

  struct Tile {
    alignas(16) T pixels[DEPTH * REACH * CHANNELS];
    alignas(16) float weights[TAPS * PITCH];
  };

  // Adds a line of the input to the lines of the output from FROM to TO, all of which it reaches.
  template <int FROM, int TO>
  static DEVICE void add(float2 (&sum)[LINES][WIDTH], const unsigned* pixels, const float* weights, int down) {
    float2 tap[TO - FROM][KERNEL];
#pragma unroll
    for (int l = FROM; l < TO; l++)
#pragma unroll
      for (int dx = 0; dx < KERNEL; dx++)
        tap[l - FROM][dx] = *reinterpret_cast<const float2*>(weights + ((down - l * STRIDE) * KERNEL + dx) * PITCH);
    // Each pixel of the line is read once and added to every output that it reaches.
#pragma unroll
    for (int column = 0; column < REACH; column++) {
      const float2 pixel = unpack(pixels[(down * REACH + column) * TEAM], T{});
#pragma unroll
      for (int l = FROM; l < TO; l++)
#pragma unroll
        for (int o = 0; o < WIDTH; o++) {
          const int dx = column - o * STRIDE;
          if (dx >= 0 && dx < KERNEL) {
            sum[l][o].x += pixel.x * tap[l - FROM][dx].x;
            sum[l][o].y += pixel.y * tap[l - FROM][dx].y;
          }
        }
    }
  }
};

template <class T, int KERNEL, int STRIDE, int ACTIVATION, int WIDTH, int HEIGHT, int CHANNELS, int LINES>
__global__ void __launch_bounds__(HEIGHT / LINES * (CHANNELS / 2))
depthwise(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, const T* __restrict__ residual,
          T* __restrict__ out, int channels, int height, int width, int out_height, int out_width, int padding) {
  using D = Depthwise<T, KERNEL, STRIDE, WIDTH, HEIGHT, CHANNELS, LINES>;
  SHARED(typename D::Tile, tile);

  const int left = blockIdx.x * WIDTH, top = blockIdx.y * HEIGHT;
  const unsigned blocks = (channels + CHANNELS - 1) / CHANNELS;    // of channels
  const long long image = blockIdx.z / blocks;
  const int first_channel = blockIdx.z % blocks * CHANNELS;

  const T* in = x + image * height * width * channels;
  // A warp copies whole lines: four pixels of 64 channels at once, or eight of 32, 16 bytes a lane.
  constexpr int CHUNKS = CHANNELS / 8, AT_ONCE = 32 / CHUNKS;
  const int chunk = threadIdx.x % CHUNKS * 8, place = threadIdx.x % 32 / CHUNKS;
  const bool has_channels = first_channel + chunk < channels;
  for (int line = threadIdx.x / 32; line < D::DEPTH; line += D::WARPS) {
    const int row = top * STRIDE + line - padding, first = left * STRIDE - padding;
    const bool has_row = has_channels && row >= 0 && row < height;
    const T* from = in + static_cast<long long>(has_row ? row : 0) * width * channels + first_channel + chunk;
#pragma unroll
    for (int step = 0; step < (D::REACH + AT_ONCE - 1) / AT_ONCE; step++) {
      const int pixel = place + step * AT_ONCE, column = first + pixel;
      const bool is_there = has_row && column >= 0 && column < width;
      if (pixel < D::REACH)
        copy_async(tile.pixels + (line * D::REACH + pixel) * CHANNELS + chunk,
                   is_there ? from + static_cast<long long>(column) * channels : in, is_there);
    }
  }
  commit_copies();
  for (int i = threadIdx.x; i < D::TAPS * CHANNELS; i += D::THREADS) {
    const int channel = i / D::TAPS, tap = i % D::TAPS;
    const bool is_there = first_channel + channel < channels;
    tile.weights[tap * D::PITCH + channel] = is_there ? widen(weight[first_channel * D::TAPS + i].bits, T{}) : 0.0f;
  }
  await_copies<0>();
  __syncthreads();

  const int lane = threadIdx.x % D::TEAM, first_line = threadIdx.x / D::TEAM * LINES;
  const unsigned* const pixels = reinterpret_cast<const unsigned*>(tile.pixels + first_line * STRIDE * D::REACH * CHANNELS) + lane;
  const float* const weights = tile.weights + lane * 2;
  float2 sum[LINES][WIDTH] = {};
  int down = 0;                                                    // the line of the input that is added
#pragma unroll 1
  for (; LINES == 2 && down < STRIDE; down++) D::template add<0, 1>(sum, pixels, weights, down);
#pragma unroll 1
  for (; down < KERNEL; down++) D::template add<0, LINES>(sum, pixels, weights, down);
#pragma unroll 1
  for (; LINES == 2 && down < KERNEL + STRIDE; down++) D::template add<LINES - 1, LINES>(sum, pixels, weights, down);

  const int channel = first_channel + lane * 2, row = top + first_line;
  if (channel >= channels || row >= out_height) return;
  const float2 offset = bias ? unpack(*reinterpret_cast<const unsigned*>(bias + channel), T{}) : make_float2(0.0f, 0.0f);
#pragma unroll
  for (int l = 0; l < LINES; l++) {
    if (l > 0 && row + l >= out_height) return;
    const long long start = ((image * out_height + row + l) * out_width + left) * channels + channel;
#pragma unroll
    for (int o = 0; o < WIDTH; o++)
      if (left + o < out_width) {
        const int at = o * channels;
        float2 made = make_float2(activate<ACTIVATION>(sum[l][o].x + offset.x), activate<ACTIVATION>(sum[l][o].y + offset.y));
        if (residual) {
          const float2 more = unpack(*reinterpret_cast<const unsigned*>(residual + start + at), T{});
          made.x += more.x;
          made.y += more.y;
        }
        *reinterpret_cast<unsigned*>(out + start + at) = pack(made.x, made.y, T{});
      }
  }
}

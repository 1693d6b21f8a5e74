// The instructions of a whole warp: every lane brings something, the last to come works out what each takes away.
//
// Only __syncwarp orders memory between lanes; shuffles, votes and matrix instructions do not, here as on a GPU.
#include <algorithm>
#include <cstring>

#include "fibers.h"

namespace cuda_on_cpu {

namespace {

constexpr int WORDS = 12;  // of 32 bits, that a lane brings or takes away at most
using Slots = uint32_t[32][WORDS];
using Finish = void (*)(const Slots& brought, Slots& taken, unsigned mask);

struct Warp {
  unsigned arrived = 0, mask = 0;
  const char* name = nullptr;
  int turn = 0;             // a lane may come to the next meeting before another has taken its part of this one
  Slots brought[2], taken[2];
  char tokens[2];
};
Warp warps[32];

Warp& warp_of(const Fiber& fiber) { return warps[fiber.number / 32]; }

int meet(const char* name, unsigned mask, const uint32_t* bring, int bring_words, uint32_t* take, int take_words, Finish finish) {
  Fiber& fiber = self();
  Warp& warp = warp_of(fiber);
  const int first = fiber.number / 32 * 32, size = std::min<int>(32, static_cast<int>(fibers.size()) - first);
  if (size < 32) mask &= (1u << size) - 1;
  if (!(mask >> fiber.lane & 1)) fail("%s: lane %d is not in its own mask %08x", name, fiber.lane, mask);
  if (warp.arrived && (warp.mask != mask || warp.name != name))
    fail("thread %d comes to %s (mask %08x) while its warp waits at %s (mask %08x)", fiber.number, name, mask, warp.name, warp.mask);
  const int turn = warp.turn % 2;
  warp.mask = mask, warp.name = name;
  warp.arrived |= 1u << fiber.lane;
  for (int i = 0; i < bring_words; i++) warp.brought[turn][fiber.lane][i] = bring[i];
  if (warp.arrived != mask) {
    pause(State::IN_WARP, name);
  } else {
    if (finish) finish(warp.brought[turn], warp.taken[turn], mask);
    warp.arrived = 0;
    warp.turn++;
    for (int lane = 0; lane < size; lane++)
      if (mask >> lane & 1 && lane != fiber.lane) fibers[static_cast<size_t>(first + lane)].state = State::READY;
  }
  for (int i = 0; i < take_words; i++) take[i] = warp.taken[turn][fiber.lane][i];
  return turn;
}

float as_float(uint32_t bits) { float x; std::memcpy(&x, &bits, 4); return x; }
uint32_t as_bits(float x) { uint32_t bits; std::memcpy(&bits, &x, 4); return bits; }
float from_bfloat16(unsigned short bits) { return as_float(static_cast<uint32_t>(bits) << 16); }
unsigned short half_of(uint32_t word, int which) { return static_cast<unsigned short>(word >> 16 * which); }

// How PTX deals m16n8k16 out (group = lane / 4, quad = lane % 4): register r of the left side holds row group + 8·(r % 2),
// columns 2·quad + 8·(r / 2) and the next; of the right side rows 2·quad + 8·r and the next, column group; of the sums
// row group + 8·(r / 2), column 2·quad + r % 2.
template <float (*WIDEN)(unsigned short)>
void multiply_16(const Slots& brought, Slots& taken, unsigned) {
  static float left[16][16], right[16][8], sum[16][8];
  for (int lane = 0; lane < 32; lane++) {
    const uint32_t* words = brought[lane];
    const int group = lane / 4, quad = lane % 4;
    for (int r = 0; r < 4; r++) sum[group + r / 2 * 8][quad * 2 + r % 2] = as_float(words[r]);
    for (int r = 0; r < 4; r++)
      for (int i = 0; i < 2; i++) left[group + r % 2 * 8][quad * 2 + r / 2 * 8 + i] = WIDEN(half_of(words[4 + r], i));
    for (int r = 0; r < 2; r++)
      for (int i = 0; i < 2; i++) right[quad * 2 + r * 8 + i][group] = WIDEN(half_of(words[8 + r], i));
  }
  for (int i = 0; i < 16; i++)
    for (int k = 0; k < 16; k++)
      for (int j = 0; j < 8; j++) sum[i][j] += left[i][k] * right[k][j];
  for (int lane = 0; lane < 32; lane++)
    for (int r = 0; r < 4; r++) taken[lane][r] = as_bits(sum[lane / 4 + r / 2 * 8][lane % 4 * 2 + r % 2]);
}

// m16n8k32 in integers, of which the left side's may have no sign: four numbers a register; of the left side columns 4·quad + 16·(r / 2), of the right side rows 4·quad + 16·r.
template <class LEFT>
void multiply_8(const Slots& brought, Slots& taken, unsigned) {
  static int left[16][32], right[32][8], sum[16][8];
  for (int lane = 0; lane < 32; lane++) {
    const uint32_t* words = brought[lane];
    const int group = lane / 4, quad = lane % 4;
    for (int r = 0; r < 4; r++) sum[group + r / 2 * 8][quad * 2 + r % 2] = static_cast<int>(words[r]);
    for (int r = 0; r < 4; r++)
      for (int i = 0; i < 4; i++) left[group + r % 2 * 8][quad * 4 + r / 2 * 16 + i] = static_cast<LEFT>(words[4 + r] >> 8 * i);
    for (int r = 0; r < 2; r++)
      for (int i = 0; i < 4; i++) right[quad * 4 + r * 16 + i][group] = static_cast<int8_t>(words[8 + r] >> 8 * i);
  }
  for (int i = 0; i < 16; i++)
    for (int k = 0; k < 32; k++)
      for (int j = 0; j < 8; j++) sum[i][j] += left[i][k] * right[k][j];
  for (int lane = 0; lane < 32; lane++)
    for (int r = 0; r < 4; r++) taken[lane][r] = static_cast<uint32_t>(sum[lane / 4 + r / 2 * 8][lane % 4 * 2 + r % 2]);
}

// ldmatrix: lanes 8m to 8m + 7 bring the rows of matrix m; a lane takes two neighbours of row lane / 4, or of that column.
template <bool IS_TRANSPOSED>
void deal(const Slots& brought, Slots& taken, unsigned) {
  const auto number = [&](int matrix, int row, int column) { return half_of(brought[8 * matrix + row][column / 2], column % 2); };
  for (int lane = 0; lane < 32; lane++)
    for (int m = 0; m < 4; m++) {
      const int group = lane / 4, pair = lane % 4 * 2;
      const uint32_t low = IS_TRANSPOSED ? number(m, pair, group) : number(m, group, pair);
      const uint32_t high = IS_TRANSPOSED ? number(m, pair + 1, group) : number(m, group, pair + 1);
      taken[lane][m] = low | high << 16;
    }
}

void exchange(const Slots& brought, Slots& taken, unsigned mask) {
  for (unsigned lane = 0; lane < 32; lane++)
    if (mask >> lane & 1) {
      const uint32_t source = brought[lane][2];
      if (source > 31 || !(mask >> source & 1)) fail("a shuffle: lane %u reads lane %u, which is not in the mask %08x", lane, source, mask);
      for (int i = 0; i < 2; i++) taken[lane][i] = brought[source][i];
    }
}

void count_votes(const Slots& brought, Slots& taken, unsigned mask) {
  uint32_t votes = 0;
  for (int lane = 0; lane < 32; lane++)
    if (mask >> lane & 1 && brought[lane][0]) votes |= 1u << lane;
  for (int lane = 0; lane < 32; lane++) taken[lane][0] = votes;
}

}  // namespace

void forget_meetings() {
  for (Warp& warp : warps) warp.arrived = 0;
}

void meet_warp(unsigned mask) {
  Warp& warp = warp_of(self());
  void* token = &warp.tokens[warp.turn % 2];
  release(token);
  meet("__syncwarp", mask, nullptr, 0, nullptr, 0, nullptr);
  acquire(token);
}

unsigned vote_warp(unsigned mask, bool vote) {
  const uint32_t brought = vote;
  uint32_t taken;
  meet("__ballot_sync", mask, &brought, 1, &taken, 1, count_votes);
  return taken;
}

uint64_t from_lane(const char* name, unsigned mask, uint64_t value, int source) {
  const uint32_t brought[3] = {static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32), static_cast<uint32_t>(source)};
  uint32_t taken[2];
  meet(name, mask, brought, 3, taken, 2, exchange);
  return taken[0] | static_cast<uint64_t>(taken[1]) << 32;
}

void multiply_add(Numbers numbers, void* sum, const unsigned* left, unsigned right0, unsigned right1) {
  uint32_t* sums = static_cast<uint32_t*>(sum);
  const uint32_t brought[10] = {sums[0], sums[1], sums[2], sums[3], left[0], left[1], left[2], left[3], right0, right1};
  const Finish finish = numbers == Numbers::INT8       ? multiply_8<int8_t>
                        : numbers == Numbers::UINT8    ? multiply_8<uint8_t>
                        : numbers == Numbers::BFLOAT16 ? multiply_16<from_bfloat16>
                                                       : multiply_16<half_to_float>;
  meet("multiply_add", ~0u, brought, 10, sums, 4, finish);
}

void deal_matrices(unsigned* parts, const uint16_t* row, bool is_transposed) {
  uint32_t brought[4];
  for (int i = 0; i < 4; i++) brought[i] = row[2 * i] | static_cast<uint32_t>(row[2 * i + 1]) << 16;
  meet("load_matrices", ~0u, brought, 4, parts, 4, is_transposed ? deal<true> : deal<false>);
}

float half_to_float(unsigned short bits) {
  _Float16 half;
  std::memcpy(&half, &bits, 2);
  return static_cast<float>(half);
}

unsigned short float_to_half(float x) {
  const _Float16 half = static_cast<_Float16>(x);
  unsigned short bits;
  std::memcpy(&bits, &half, 2);
  return bits;
}

}  // namespace cuda_on_cpu

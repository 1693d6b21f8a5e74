// Quantized values of eight bits, each of which represents (value - zero) · scale.
//
// Here a value is 0 … 255 whichever type it has in memory: int8 is the same with the highest bit flipped and a zero point that is
// 128 larger. Integers and floats are converted by additions, which are faster than conversion instructions.
#pragma once
#include "activation.cuh"

constexpr float WHOLE = 12582912.0f;                     // 1.5 · 2²³: a sum with it is an integer in its low bits, halves to even
constexpr unsigned WHOLE_BITS = 0x4b400000u;

DEVICE unsigned turned(unsigned word, uint8) { return word; }
DEVICE unsigned turned(unsigned word, int8) { return word ^ 0x80808080u; }

// Value number `which` of a word, above 2²³.
constexpr float ABOVE = 8388608.0f;
DEVICE float above(unsigned word, int which) { return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440 | which)); }

// Floats in units of the scale: clamped to the range of quantized values (or less, where an activation requires it), rounded, and
// offset by the zero point.
struct Rounding {
  float low, high;
  unsigned zeros;

  DEVICE Rounding(float low, float high, int zero) : low(low), high(high), zeros(zero * 0x01010101u - WHOLE_BITS - (WHOLE_BITS << 8)) {}
  DEVICE unsigned whole(float number) const { return __float_as_uint(fminf(fmaxf(number, low), high) + WHOLE); }
  // The quantized values of a word, the first in the lowest byte; for two, only the lower half of the word is meaningful. Each value
  // is within its byte once the zero point is added, so that no byte affects the next.
  DEVICE unsigned steps(float one, float two) const { return (whole(two) << 8) + whole(one) + zeros; }
  DEVICE unsigned steps(float one, float two, float three, float four) const {
    return (((((whole(four) << 8) + whole(three)) << 8) + whole(two)) << 8) + whole(one) + zeros;
  }
};

// When values are scaled to units of the output's scale: at once, or after an activation that needs them unscaled.
template <class OUT, int ACTIVATION>
struct Units {
  static constexpr bool MAKES_STEPS = sizeof(OUT) == 1, AT_ONCE = MAKES_STEPS && ACTIVATION == NONE;
  DEVICE static float before(float inverse) { return AT_ONCE ? inverse : 1.0f; }
  DEVICE static float after(float inverse) { return MAKES_STEPS && !AT_ONCE ? inverse : 1.0f; }
};

// Two neighbouring outputs in floats.
DEVICE void store(float* to, float low, float high) { *reinterpret_cast<float2*>(to) = make_float2(low, high); }
template <class T>
DEVICE void store(T* to, float low, float high) { *reinterpret_cast<unsigned*>(to) = pack(low, high, T{}); }

// The activations applied to a sum before it is rounded. The names are those of paifuser_lab/kernels/activation.py, in capitals.
#pragma once
#include "common.cuh"

enum Activation { NONE, RELU, RELU6, SILU, GELU, HARDSWISH };

// The error function to 2e-7 (Abramowitz and Stegun 7.1.26): a quarter of the instructions of erff, and more precise than 16 bits.
DEVICE float error_function(float x) {
  const float t = fast_reciprocal(1.0f + 0.3275911f * fabsf(x));
  const float tail = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  return copysignf(1.0f - tail * fast_exp2(-x * x * LOG2_E), x);
}

// Comparisons propagate NaN, as torch's do.
template <int ACTIVATION>
DEVICE float activate(float x) {
  if (ACTIVATION == RELU) return x < 0.0f ? 0.0f : x;
  if (ACTIVATION == RELU6) return x < 0.0f ? 0.0f : x > 6.0f ? 6.0f : x;
  if (ACTIVATION == SILU) return x * fast_reciprocal(1.0f + fast_exp2(-x * LOG2_E));
  if (ACTIVATION == GELU) return 0.5f * x * (1.0f + error_function(x * 0.70710678f));
  if (ACTIVATION == HARDSWISH) return x * activate<RELU6>(x + 3.0f) * (1.0f / 6.0f);
  return x;
}

// Colour operations over one row of float32 planes; portable and AVX2, equal bits.
#pragma once
#include "renaissance/color.h"

namespace rn {

enum ColorKind : i32 {
  COLOR_BRIGHTNESS,  // factor
  COLOR_BLEND,       // factor, towards `other` (the mean gray: contrast)
  COLOR_SATURATION,  // factor
  COLOR_HUE,         // factor: sixths of a turn, 0 to 6
  COLOR_GRAYSCALE,
  COLOR_STRETCH,    // (x - low[c]) * gain[c], kept in 0-255: autocontrast
  COLOR_POSTERIZE,  // mask
  COLOR_SOLARIZE,   // factor: the threshold
  COLOR_TABLE,      // table[c * 256 + level]: equalize
  COLOR_SCALE,      // x * gain[c] + low[c]: normalisation, always the last
};

struct ColorStep {
  ColorKind kind;
  float factor = 0.0f, other = 0.0f;
  u32 mask = 0;
  float low[MAX_CHANNELS] = {}, gain[MAX_CHANNELS] = {};
  const float* table = nullptr;
};

struct ColorKernels {
  // `steps` steps in order, a pixel through all of them at once; `from` may be `to`.
  void (*apply)(const ColorStep* step, int steps, const float* const* from, float* const* to,
                int channels, int count);
  // Sum of the row's gray levels: lane i mod 8 adds up in order, lanes fold by halves.
  float (*gray_sum)(const float* const* planes, int channels, int count);
  // Widens [*low, *high] by the values of one plane.
  void (*extremes)(const float* plane, int count, float* low, float* high);
};

const ColorKernels& portable_colors();
const ColorKernels* avx2_colors();
const ColorKernels& color_kernels();

}  // namespace rn

// The portable colour kernels: what the AVX2 ones must equal bit for bit.
#include "color_rows.h"

#include <cstring>

#include "rows.h"

namespace rn {
namespace {

// f over every value of every plane.
template <class F>
void each(float* const* planes, int channels, int count, const F& f) {
  for (int c = 0; c < channels; ++c)
    for (int i = 0; i < count; ++i) planes[c][i] = f(planes[c][i], c);
}

void saturate(float factor, float* const* p, int count) {
  const float rest = 1.0f - factor;
  for (int i = 0; i < count; ++i) {
    const float gray = gray_of(p[0][i], p[1][i], p[2][i]);
    for (int c = 0; c < 3; ++c) p[c][i] = blended(p[c][i], gray, factor, rest);
  }
}

void turn_hues(float sixths, float* const* p, int count) {
  for (int i = 0; i < count; ++i) turn_hue(sixths, p[0] + i, p[1] + i, p[2] + i);
}

void to_gray(float* const* p, int count) {
  for (int i = 0; i < count; ++i) {
    const float gray = gray_of(p[0][i], p[1][i], p[2][i]);
    for (int c = 0; c < 3; ++c) p[c][i] = gray;
  }
}

void apply_one(const ColorStep& step, float* const* planes, int channels, int count) {
  const float factor = step.factor, rest = 1.0f - factor, other = step.other;
  switch (step.kind) {
    case COLOR_BRIGHTNESS:
      return each(planes, channels, count, [&](float x, int) { return in_levels(x * factor); });
    case COLOR_BLEND:
      return each(planes, channels, count,
                  [&](float x, int) { return blended(x, other, factor, rest); });
    case COLOR_SATURATION: return channels == 3 ? saturate(factor, planes, count) : void();
    case COLOR_HUE: return channels == 3 ? turn_hues(factor, planes, count) : void();
    case COLOR_GRAYSCALE: return channels == 3 ? to_gray(planes, count) : void();
    case COLOR_STRETCH:
      return each(planes, channels, count, [&](float x, int c) {
        return in_levels((x - step.low[c]) * step.gain[c]);
      });
    case COLOR_POSTERIZE:
      return each(planes, channels, count, [&](float x, int) { return posterized(x, step.mask); });
    case COLOR_SOLARIZE:
      return each(planes, channels, count, [&](float x, int) { return solarized(x, factor); });
    case COLOR_TABLE:
      return each(planes, channels, count, [&](float x, int c) {
        return step.table[c * 256 + static_cast<int>(round_even(in_levels(x)))];
      });
    case COLOR_SCALE:
      return each(planes, channels, count,
                  [&](float x, int c) { return x * step.gain[c] + step.low[c]; });
  }
}

void apply(const ColorStep* step, int steps, const float* const* from, float* const* to,
           int channels, int count) {
  for (int c = 0; c < channels; ++c)
    if (from[c] != to[c]) std::memcpy(to[c], from[c], sizeof(float) * count);
  for (int k = 0; k < steps; ++k) apply_one(step[k], to, channels, count);
}

float gray_sum(const float* const* planes, int channels, int count) {
  float lane[8] = {};
  for (int i = 0; i < count; ++i) {
    const float gray =
        channels == 3 ? gray_of(planes[0][i], planes[1][i], planes[2][i]) : planes[0][i];
    lane[i & 7] = lane[i & 7] + gray;
  }
  for (int half = 4; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] = lane[i] + lane[i + half];
  return lane[0];
}

void extremes(const float* plane, int count, float* low, float* high) {
  for (int i = 0; i < count; ++i) {
    *low = plane[i] < *low ? plane[i] : *low;
    *high = plane[i] > *high ? plane[i] : *high;
  }
}

}  // namespace

const ColorKernels& portable_colors() {
  static const ColorKernels kernels = {apply, gray_sum, extremes};
  return kernels;
}

const ColorKernels& color_kernels() {
  return simd_in_use() ? *avx2_colors() : portable_colors();
}

}  // namespace rn

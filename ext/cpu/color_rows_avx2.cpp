// The colour kernels for AVX2: eight pixels at a time, the operations of color.h in their order.
// A group stays in registers through all steps. What is left of a row (in place, so groups may not
// overlap), and rows with a step that is not written for AVX2, are done by the portable kernels.
#include "color_rows.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define RN_AVX2 __attribute__((target("avx2")))

namespace rn {
namespace {

RN_AVX2 inline __m256 all(float x) { return _mm256_set1_ps(x); }

// Positive floats are ordered as the integers of the same bits, and negative ones are below them as
// these are: where one of two values is not negative, minima and maxima of integers give the same
// bits, and more of the processor's units make them.
RN_AVX2 inline __m256 least(__m256 a, __m256 b) {
  return _mm256_castsi256_ps(_mm256_min_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}

RN_AVX2 inline __m256 not_negative(__m256 x) {
  return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(x), _mm256_setzero_si256()));
}

// x - 6 from 6 on: as unsigned integers negative floats are above the others.
RN_AVX2 inline __m256 below_six(__m256 x) {
  const __m256i less = _mm256_castps_si256(_mm256_sub_ps(x, all(6.0f)));
  return _mm256_castsi256_ps(_mm256_min_epu32(_mm256_castps_si256(x), less));
}

// As in the portable text, the constant where both are equal.
RN_AVX2 inline __m256 in_levels8(__m256 x) {
  return least(_mm256_max_ps(x, _mm256_setzero_ps()), all(TOP_LEVEL));
}

RN_AVX2 inline __m256 blended8(__m256 x, __m256 other, __m256 factor, __m256 rest) {
  return in_levels8(_mm256_add_ps(_mm256_mul_ps(factor, x), _mm256_mul_ps(rest, other)));
}

RN_AVX2 inline __m256 gray8(__m256 r, __m256 g, __m256 b) {
  const __m256 rg = _mm256_add_ps(_mm256_mul_ps(all(0.2989f), r), _mm256_mul_ps(all(0.587f), g));
  return _mm256_add_ps(rg, _mm256_mul_ps(all(0.114f), b));
}

RN_AVX2 inline __m256 hue_channel8(float n, __m256 h6, __m256 v, __m256 c) {
  const __m256 k = below_six(_mm256_add_ps(all(n), h6));
  const __m256 part = not_negative(least(least(k, _mm256_sub_ps(all(4.0f), k)), all(1.0f)));
  return _mm256_sub_ps(v, _mm256_mul_ps(c, part));
}

// Eight pixels.
struct Eight {
  __m256 r, g, b;
};

// A hue is one long chain of operations: groups go through it stage by stage, so that the processor
// finds those of the next group among the few that it looks at.
template <int groups>
RN_AVX2 inline void turn_hues(float sixths, Eight* x) {
  const __m256 zero = _mm256_setzero_ps();
  __m256 v[groups], chroma[groups], inverse[groups], h[groups];
  for (int j = 0; j < groups; ++j) {
    v[j] = _mm256_max_ps(_mm256_max_ps(x[j].r, x[j].g), x[j].b);
    chroma[j] = _mm256_sub_ps(v[j], _mm256_min_ps(_mm256_min_ps(x[j].r, x[j].g), x[j].b));
  }
  for (int j = 0; j < groups; ++j) {
    const __m256 flat = _mm256_cmp_ps(chroma[j], zero, _CMP_EQ_OQ);
    inverse[j] = _mm256_div_ps(all(1.0f), _mm256_blendv_ps(chroma[j], all(1.0f), flat));
  }
  for (int j = 0; j < groups; ++j) {
    const __m256 r = x[j].r, g = x[j].g, b = x[j].b;
    h[j] = _mm256_add_ps(_mm256_mul_ps(_mm256_sub_ps(r, g), inverse[j]), all(4.0f));
    const __m256 hg = _mm256_add_ps(_mm256_mul_ps(_mm256_sub_ps(b, r), inverse[j]), all(2.0f));
    const __m256 hr = _mm256_mul_ps(_mm256_sub_ps(g, b), inverse[j]);
    h[j] = _mm256_blendv_ps(h[j], hg, _mm256_cmp_ps(v[j], g, _CMP_EQ_OQ));
    h[j] = _mm256_blendv_ps(h[j], hr, _mm256_cmp_ps(v[j], r, _CMP_EQ_OQ));
    h[j] = _mm256_add_ps(h[j], all(sixths));
  }
  for (int j = 0; j < groups; ++j) {
    const __m256 negative = _mm256_cmp_ps(h[j], zero, _CMP_LT_OQ);
    h[j] = below_six(_mm256_blendv_ps(h[j], _mm256_add_ps(h[j], all(6.0f)), negative));
  }
  for (int j = 0; j < groups; ++j) x[j].r = hue_channel8(5.0f, h[j], v[j], chroma[j]);
  for (int j = 0; j < groups; ++j) x[j].g = hue_channel8(3.0f, h[j], v[j], chroma[j]);
  for (int j = 0; j < groups; ++j) x[j].b = hue_channel8(1.0f, h[j], v[j], chroma[j]);
}

RN_AVX2 inline Eight toward(__m256 other, float factor, const Eight& x) {
  const __m256 part = all(factor), rest = all(1.0f - factor);
  return {blended8(x.r, other, part, rest), blended8(x.g, other, part, rest),
          blended8(x.b, other, part, rest)};
}

RN_AVX2 inline Eight brightened(float factor, const Eight& x) {
  const __m256 by = all(factor);
  return {in_levels8(_mm256_mul_ps(x.r, by)), in_levels8(_mm256_mul_ps(x.g, by)),
          in_levels8(_mm256_mul_ps(x.b, by))};
}

RN_AVX2 inline __m256 stretched(const ColorStep& step, int c, __m256 x) {
  return in_levels8(_mm256_mul_ps(_mm256_sub_ps(x, all(step.low[c])), all(step.gain[c])));
}

RN_AVX2 inline __m256 scaled(const ColorStep& step, int c, __m256 x) {
  return _mm256_add_ps(_mm256_mul_ps(x, all(step.gain[c])), all(step.low[c]));
}

// One step of channel c alone; only kinds that look at no other channel.
RN_AVX2 inline __m256 alone(const ColorStep& step, int c, __m256 x) {
  switch (step.kind) {
    case COLOR_BRIGHTNESS: return in_levels8(_mm256_mul_ps(x, all(step.factor)));
    case COLOR_BLEND:
      return blended8(x, all(step.other), all(step.factor), all(1.0f - step.factor));
    case COLOR_STRETCH: return stretched(step, c, x);
    case COLOR_SCALE: return scaled(step, c, x);
    default: return x;
  }
}

// One step of `groups` times eight pixels: the choice is made once for all of them.
template <int groups>
RN_AVX2 inline void together(const ColorStep& step, Eight* x) {
  switch (step.kind) {
    case COLOR_BRIGHTNESS:
      for (int j = 0; j < groups; ++j) x[j] = brightened(step.factor, x[j]);
      break;
    case COLOR_BLEND:
      for (int j = 0; j < groups; ++j) x[j] = toward(all(step.other), step.factor, x[j]);
      break;
    case COLOR_SATURATION:
      for (int j = 0; j < groups; ++j)
        x[j] = toward(gray8(x[j].r, x[j].g, x[j].b), step.factor, x[j]);
      break;
    case COLOR_HUE:
      turn_hues<groups>(step.factor, x);
      break;
    case COLOR_GRAYSCALE:
      for (int j = 0; j < groups; ++j) x[j].r = x[j].g = x[j].b = gray8(x[j].r, x[j].g, x[j].b);
      break;
    case COLOR_STRETCH:
      for (int j = 0; j < groups; ++j)
        x[j] = {stretched(step, 0, x[j].r), stretched(step, 1, x[j].g), stretched(step, 2, x[j].b)};
      break;
    default:
      for (int j = 0; j < groups; ++j)
        x[j] = {scaled(step, 0, x[j].r), scaled(step, 1, x[j].g), scaled(step, 2, x[j].b)};
  }
}

// Whether eight pixels at a time take this step.
bool is_wide(const ColorStep& step) {
  return step.kind != COLOR_POSTERIZE && step.kind != COLOR_SOLARIZE && step.kind != COLOR_TABLE;
}

// Pixels from `at` on through all steps; gives where it stopped.
template <int groups>
RN_AVX2 int apply_rgb(const ColorStep* step, int steps, const float* const* from, float* const* to,
                      int at, int count) {
  for (; at + 8 * groups <= count; at += 8 * groups) {
    Eight x[groups];
    for (int j = 0; j < groups; ++j)
      x[j] = {_mm256_loadu_ps(from[0] + at + 8 * j), _mm256_loadu_ps(from[1] + at + 8 * j),
              _mm256_loadu_ps(from[2] + at + 8 * j)};
    for (int k = 0; k < steps; ++k) together<groups>(step[k], x);
    for (int j = 0; j < groups; ++j) {
      _mm256_storeu_ps(to[0] + at + 8 * j, x[j].r);
      _mm256_storeu_ps(to[1] + at + 8 * j, x[j].g);
      _mm256_storeu_ps(to[2] + at + 8 * j, x[j].b);
    }
  }
  return at;
}

RN_AVX2 void apply_plane(const ColorStep* step, int steps, int c, const float* from, float* to,
                         int count) {
  for (int i = 0; i < count; i += 8) {
    __m256 x = _mm256_loadu_ps(from + i);
    for (int k = 0; k < steps; ++k) x = alone(step[k], c, x);
    _mm256_storeu_ps(to + i, x);
  }
}

RN_AVX2 void apply(const ColorStep* step, int steps, const float* const* from, float* const* to,
                   int channels, int count) {
  bool wide = true;
  for (int k = 0; k < steps; ++k) wide = wide && is_wide(step[k]);
  const int whole = wide ? count & ~7 : 0;
  if (channels == 3) {
    const int at = apply_rgb<4>(step, steps, from, to, 0, whole);
    apply_rgb<1>(step, steps, from, to, at, whole);
  } else {
    for (int c = 0; c < channels; ++c) apply_plane(step, steps, c, from[c], to[c], whole);
  }
  if (whole == count) return;
  const float* rest_from[MAX_CHANNELS];
  float* rest_to[MAX_CHANNELS];
  for (int c = 0; c < channels; ++c) {
    rest_from[c] = from[c] + whole;
    rest_to[c] = to[c] + whole;
  }
  portable_colors().apply(step, steps, rest_from, rest_to, channels, count - whole);
}

RN_AVX2 float gray_sum(const float* const* planes, int channels, int count) {
  __m256 sum = _mm256_setzero_ps();
  const int whole = count & ~7;
  for (int i = 0; i < whole; i += 8) {
    const __m256 first = _mm256_loadu_ps(planes[0] + i);
    sum = _mm256_add_ps(sum, channels == 3 ? gray8(first, _mm256_loadu_ps(planes[1] + i),
                                                   _mm256_loadu_ps(planes[2] + i))
                                           : first);
  }
  float lane[8];
  _mm256_storeu_ps(lane, sum);
  for (int i = whole; i < count; ++i)
    lane[i & 7] += channels == 3 ? gray_of(planes[0][i], planes[1][i], planes[2][i]) : planes[0][i];
  for (int half = 4; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] = lane[i] + lane[i + half];
  return lane[0];
}

RN_AVX2 void extremes(const float* plane, int count, float* low, float* high) {
  const int whole = count & ~7;
  if (whole) {
    __m256 least = all(*low), most = all(*high);
    for (int i = 0; i < whole; i += 8) {
      const __m256 x = _mm256_loadu_ps(plane + i);
      least = _mm256_min_ps(x, least);
      most = _mm256_max_ps(x, most);
    }
    float lows[8], highs[8];
    _mm256_storeu_ps(lows, least);
    _mm256_storeu_ps(highs, most);
    for (int i = 0; i < 8; ++i) {
      *low = lows[i] < *low ? lows[i] : *low;
      *high = highs[i] > *high ? highs[i] : *high;
    }
  }
  portable_colors().extremes(plane + whole, count - whole, low, high);
}

}  // namespace

const ColorKernels* avx2_colors() {
  static const ColorKernels kernels = {apply, gray_sum, extremes};
  return &kernels;
}

}  // namespace rn

#else

namespace rn {
const ColorKernels* avx2_colors() { return nullptr; }
}  // namespace rn

#endif

// The colour kernels for AVX2: eight pixels at a time, the operations of color.h in their order.
// What is left of a row (in place, so groups may not overlap) is done by the portable kernels.
#include "color_rows.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define RN_AVX2 __attribute__((target("avx2")))

namespace rn {
namespace {

RN_AVX2 inline __m256 all(float x) { return _mm256_set1_ps(x); }

// As in the portable text, the constant where both are equal.
RN_AVX2 inline __m256 in_levels8(__m256 x) {
  x = _mm256_max_ps(x, _mm256_setzero_ps());
  return _mm256_min_ps(x, all(TOP_LEVEL));
}

RN_AVX2 inline __m256 blended8(__m256 x, __m256 other, __m256 factor, __m256 rest) {
  return in_levels8(_mm256_add_ps(_mm256_mul_ps(factor, x), _mm256_mul_ps(rest, other)));
}

RN_AVX2 inline __m256 gray8(__m256 r, __m256 g, __m256 b) {
  const __m256 rg = _mm256_add_ps(_mm256_mul_ps(all(0.2989f), r), _mm256_mul_ps(all(0.587f), g));
  return _mm256_add_ps(rg, _mm256_mul_ps(all(0.114f), b));
}

RN_AVX2 inline __m256 hue_channel8(float n, __m256 h6, __m256 v, __m256 c) {
  __m256 k = _mm256_add_ps(all(n), h6);
  const __m256 around = _mm256_cmp_ps(k, all(6.0f), _CMP_GE_OQ);
  k = _mm256_sub_ps(k, _mm256_and_ps(around, all(6.0f)));
  __m256 part = _mm256_min_ps(k, _mm256_sub_ps(all(4.0f), k));
  part = _mm256_max_ps(_mm256_min_ps(part, all(1.0f)), _mm256_setzero_ps());
  return _mm256_sub_ps(v, _mm256_mul_ps(c, part));
}

RN_AVX2 void turn_hues(float sixths, float* const* p, int count) {
  const __m256 six = all(6.0f), zero = _mm256_setzero_ps();
  for (int i = 0; i < count; i += 8) {
    const __m256 r = _mm256_loadu_ps(p[0] + i), g = _mm256_loadu_ps(p[1] + i);
    const __m256 b = _mm256_loadu_ps(p[2] + i);
    const __m256 v = _mm256_max_ps(_mm256_max_ps(r, g), b);
    const __m256 chroma = _mm256_sub_ps(v, _mm256_min_ps(_mm256_min_ps(r, g), b));
    const __m256 flat = _mm256_cmp_ps(chroma, zero, _CMP_EQ_OQ);
    const __m256 inverse = _mm256_div_ps(all(1.0f), _mm256_blendv_ps(chroma, all(1.0f), flat));
    __m256 h = _mm256_add_ps(_mm256_mul_ps(_mm256_sub_ps(r, g), inverse), all(4.0f));
    const __m256 hg = _mm256_add_ps(_mm256_mul_ps(_mm256_sub_ps(b, r), inverse), all(2.0f));
    const __m256 hr = _mm256_mul_ps(_mm256_sub_ps(g, b), inverse);
    h = _mm256_blendv_ps(h, hg, _mm256_cmp_ps(v, g, _CMP_EQ_OQ));
    h = _mm256_blendv_ps(h, hr, _mm256_cmp_ps(v, r, _CMP_EQ_OQ));
    h = _mm256_add_ps(h, all(sixths));
    h = _mm256_blendv_ps(h, _mm256_add_ps(h, six), _mm256_cmp_ps(h, zero, _CMP_LT_OQ));
    h = _mm256_sub_ps(h, _mm256_and_ps(_mm256_cmp_ps(h, six, _CMP_GE_OQ), six));
    _mm256_storeu_ps(p[0] + i, hue_channel8(5.0f, h, v, chroma));
    _mm256_storeu_ps(p[1] + i, hue_channel8(3.0f, h, v, chroma));
    _mm256_storeu_ps(p[2] + i, hue_channel8(1.0f, h, v, chroma));
  }
}

RN_AVX2 void toward_gray(float factor, float rest, float* const* p, int count, bool keep_color) {
  for (int i = 0; i < count; i += 8) {
    const __m256 gray = gray8(_mm256_loadu_ps(p[0] + i), _mm256_loadu_ps(p[1] + i),
                              _mm256_loadu_ps(p[2] + i));
    for (int c = 0; c < 3; ++c) {
      const __m256 x = _mm256_loadu_ps(p[c] + i);
      _mm256_storeu_ps(p[c] + i, keep_color ? blended8(x, gray, all(factor), all(rest)) : gray);
    }
  }
}

RN_AVX2 void brighten(float factor, float* x, int count) {
  for (int i = 0; i < count; i += 8)
    _mm256_storeu_ps(x + i, in_levels8(_mm256_mul_ps(_mm256_loadu_ps(x + i), all(factor))));
}

RN_AVX2 void blend(const ColorStep& step, float* x, int count) {
  const __m256 factor = all(step.factor), rest = all(1.0f - step.factor), other = all(step.other);
  for (int i = 0; i < count; i += 8)
    _mm256_storeu_ps(x + i, blended8(_mm256_loadu_ps(x + i), other, factor, rest));
}

RN_AVX2 void stretch(float low, float gain, float* x, int count) {
  for (int i = 0; i < count; i += 8) {
    const __m256 moved = _mm256_sub_ps(_mm256_loadu_ps(x + i), all(low));
    _mm256_storeu_ps(x + i, in_levels8(_mm256_mul_ps(moved, all(gain))));
  }
}

RN_AVX2 void apply(const ColorStep& step, float* const* planes, int channels, int count) {
  const int whole = count & ~7;
  bool done = true;
  if (step.kind == COLOR_HUE && channels == 3)
    turn_hues(step.factor, planes, whole);
  else if (step.kind == COLOR_SATURATION && channels == 3)
    toward_gray(step.factor, 1.0f - step.factor, planes, whole, true);
  else if (step.kind == COLOR_GRAYSCALE && channels == 3)
    toward_gray(0.0f, 1.0f, planes, whole, false);
  else if (step.kind == COLOR_BRIGHTNESS)
    for (int c = 0; c < channels; ++c) brighten(step.factor, planes[c], whole);
  else if (step.kind == COLOR_BLEND)
    for (int c = 0; c < channels; ++c) blend(step, planes[c], whole);
  else if (step.kind == COLOR_STRETCH)
    for (int c = 0; c < channels; ++c) stretch(step.low[c], step.gain[c], planes[c], whole);
  else
    done = false;
  const int from = done ? whole : 0;
  float* rest[MAX_CHANNELS];
  for (int c = 0; c < channels; ++c) rest[c] = planes[c] + from;
  if (from < count) portable_colors().apply(step, rest, channels, count - from);
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

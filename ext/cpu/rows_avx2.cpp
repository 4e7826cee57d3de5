// The row kernels for AVX2 and F16C: eight pixels at a time, the same operations in the same order
// as rows.cpp, no fused multiply-add.
#include "rows.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define RN_AVX2 __attribute__((target("avx2,f16c")))

namespace rn {
namespace {

RN_AVX2 inline __m256 widen(__m128i eight_bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(eight_bytes));
}

RN_AVX2 inline __m256 scaled(__m256 x, __m256 scale, __m256 shift) {
  return _mm256_add_ps(_mm256_mul_ps(x, scale), shift);
}

RN_AVX2 void scale_row(float* x, int count, float scale, float shift) {
  const __m256 a = _mm256_set1_ps(scale), b = _mm256_set1_ps(shift);
  int i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(x + i, scaled(_mm256_loadu_ps(x + i), a, b));
  for (; i < count; ++i) x[i] = x[i] * scale + shift;
}

RN_AVX2 void pair_bytes(const u8* upper, const u8* lower, int count, u16* out) {
  int i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m128i u = _mm_loadu_si128(reinterpret_cast<const __m128i*>(upper + i));
    const __m128i l = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lower + i));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm_unpacklo_epi8(u, l));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i + 8), _mm_unpackhi_epi8(u, l));
  }
  for (; i < count; ++i) out[i] = static_cast<u16>(upper[i] | (lower[i] << 8));
}

RN_AVX2 void float16(const float* src, int count, u16* out) {
  int i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
  for (; i < count; ++i) out[i] = to_float16(src[i]);
}

RN_AVX2 void bfloat16(const float* src, int count, u16* out) {
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(src + i));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i half = _mm256_srli_epi32(up, 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(half, half), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm256_castsi256_si128(packed));
  }
  for (; i < count; ++i) out[i] = to_bfloat16(src[i]);
}

RN_AVX2 inline __m256 eight(const u8* at) {
  return widen(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
}
RN_AVX2 inline __m256 eight(const float* at) { return _mm256_loadu_ps(at); }

template <class T>
RN_AVX2 inline void blend(const T* const* rows, const float* weight, int taps, int count,
                          float* out) {
  int i = 0;
  for (; i + 32 <= count; i += 32) {
    __m256 w = _mm256_broadcast_ss(weight);
    __m256 a = _mm256_mul_ps(w, eight(rows[0] + i)), b = _mm256_mul_ps(w, eight(rows[0] + i + 8));
    __m256 c = _mm256_mul_ps(w, eight(rows[0] + i + 16)), d = _mm256_mul_ps(w, eight(rows[0] + i + 24));
    for (int k = 1; k < taps; ++k) {
      const T* row = rows[k] + i;
      w = _mm256_broadcast_ss(weight + k);
      a = _mm256_add_ps(a, _mm256_mul_ps(w, eight(row)));
      b = _mm256_add_ps(b, _mm256_mul_ps(w, eight(row + 8)));
      c = _mm256_add_ps(c, _mm256_mul_ps(w, eight(row + 16)));
      d = _mm256_add_ps(d, _mm256_mul_ps(w, eight(row + 24)));
    }
    _mm256_storeu_ps(out + i, a);
    _mm256_storeu_ps(out + i + 8, b);
    _mm256_storeu_ps(out + i + 16, c);
    _mm256_storeu_ps(out + i + 24, d);
  }
  for (; i + 8 <= count; i += 8) {
    __m256 sum = _mm256_mul_ps(_mm256_broadcast_ss(weight), eight(rows[0] + i));
    for (int k = 1; k < taps; ++k)
      sum = _mm256_add_ps(sum, _mm256_mul_ps(_mm256_broadcast_ss(weight + k), eight(rows[k] + i)));
    _mm256_storeu_ps(out + i, sum);
  }
  for (; i < count; ++i) {
    float sum = weight[0] * static_cast<float>(rows[0][i]);
    for (int k = 1; k < taps; ++k) sum = sum + weight[k] * static_cast<float>(rows[k][i]);
    out[i] = sum;
  }
}

RN_AVX2 void blend_bytes(const u8* const* rows, const float* weight, int taps, int count,
                         float* out) {
  blend(rows, weight, taps, count, out);
}

RN_AVX2 void blend_floats(const float* const* rows, const float* weight, int taps, int count,
                          float* out) {
  blend(rows, weight, taps, count, out);
}

// One output pixel in four lanes, the last one of them idle. A count known when compiling makes
// straight code of it.
template <int known>
RN_AVX2 inline __m128 reduced(const float* at, int step, const float* weight, int taps) {
  const int count = known ? known : taps;
  __m128 even = _mm_mul_ps(_mm_broadcast_ss(weight), _mm_loadu_ps(at));
  __m128 odd = _mm_mul_ps(_mm_broadcast_ss(weight + 1), _mm_loadu_ps(at + step));
  for (int k = 2; k < count; k += 2) {
    at += 2 * step;
    even = _mm_add_ps(even, _mm_mul_ps(_mm_broadcast_ss(weight + k), _mm_loadu_ps(at)));
    odd = _mm_add_ps(odd, _mm_mul_ps(_mm_broadcast_ss(weight + k + 1), _mm_loadu_ps(at + step)));
  }
  return _mm_add_ps(even, odd);
}

RN_AVX2 inline __m256 both(const float* low, const float* high) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
}

// Two output pixels: `weight` has eight floats for each tap.
template <int known>
RN_AVX2 inline __m256 reduced_pair(const float* low, const float* high, int step,
                                   const float* weight, int taps) {
  const int count = known ? known : taps;
  __m256 even = _mm256_mul_ps(_mm256_loadu_ps(weight), both(low, high));
  __m256 odd = _mm256_mul_ps(_mm256_loadu_ps(weight + 8), both(low + step, high + step));
  for (int k = 2; k < count; k += 2) {
    low += 2 * step;
    high += 2 * step;
    weight += 16;
    even = _mm256_add_ps(even, _mm256_mul_ps(_mm256_loadu_ps(weight), both(low, high)));
    odd = _mm256_add_ps(odd, _mm256_mul_ps(_mm256_loadu_ps(weight + 8),
                                           both(low + step, high + step)));
  }
  return _mm256_add_ps(even, odd);
}

// Eight output pixels at a time, as far as they go; gives where it stopped.
template <int known>
RN_AVX2 int reduce_pairs(const float* row, int step, const Taps& taps, int count,
                         float* const* out) {
  const int* first = taps.first;
  const float* weight = taps.pairs;
  const int total = known ? known : taps.count;
  float* const planes[3] = {out[0], out[1], out[2]};
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    __m256 p[4];
    for (int j = 0; j < 4; ++j, weight += 8 * total)
      p[j] = reduced_pair<known>(row + first[i + j] * step, row + first[i + j + 4] * step, step,
                                 weight, total);
    const __m256 red_green = _mm256_unpacklo_ps(p[0], p[1]), more = _mm256_unpacklo_ps(p[2], p[3]);
    const __m256 blue = _mm256_unpackhi_ps(p[0], p[1]), more_blue = _mm256_unpackhi_ps(p[2], p[3]);
    _mm256_storeu_ps(planes[0] + i, _mm256_shuffle_ps(red_green, more, 0x44));
    _mm256_storeu_ps(planes[1] + i, _mm256_shuffle_ps(red_green, more, 0xee));
    _mm256_storeu_ps(planes[2] + i, _mm256_shuffle_ps(blue, more_blue, 0x44));
  }
  return i;
}

template <int known>
RN_AVX2 void reduce_rgb_of(const float* row, int step, const Taps& taps, int count,
                           float* const* out) {
  const int* first = taps.first;
  const float* weight = taps.weight;
  const int most = taps.most, total = taps.count;
  float* const planes[3] = {out[0], out[1], out[2]};
  int i = taps.pairs ? reduce_pairs<known>(row, step, taps, count, out) : 0;
  for (; i + 4 <= count; i += 4) {
    __m128 p[4];
    for (int j = 0; j < 4; ++j)
      p[j] = reduced<known>(row + first[i + j] * step, step, weight + (i + j) * most, total);
    _MM_TRANSPOSE4_PS(p[0], p[1], p[2], p[3]);
    for (int c = 0; c < 3; ++c) _mm_storeu_ps(planes[c] + i, p[c]);
  }
  for (; i < count; ++i) {
    float pixel[4];
    _mm_storeu_ps(pixel, reduced<known>(row + first[i] * step, step, weight + i * most, total));
    for (int c = 0; c < 3; ++c) planes[c][i] = pixel[c];
  }
}

void reduce_rgb(const float* row, int step, const Taps& taps, int count, float* const* out) {
  switch (taps.count) {
    case 2: return reduce_rgb_of<2>(row, step, taps, count, out);
    case 4: return reduce_rgb_of<4>(row, step, taps, count, out);
    case 6: return reduce_rgb_of<6>(row, step, taps, count, out);
    default: return reduce_rgb_of<0>(row, step, taps, count, out);
  }
}

void reduce_plane(const float* row, int step, const Taps& taps, int count, float* out) {
  portable_rows().reduce_plane(row, step, taps, count, out);
}

RN_AVX2 void interleave4(const float* const* src, int planes, int count, float* out) {
  const __m256 zero = _mm256_setzero_ps();
  for (int i = 0, last = count - 8;; i = i + 8 < last ? i + 8 : last) {
    const __m256 a = _mm256_loadu_ps(src[0] + i);
    const __m256 b = planes > 1 ? _mm256_loadu_ps(src[1] + i) : zero;
    const __m256 c = planes > 2 ? _mm256_loadu_ps(src[2] + i) : zero;
    const __m256 d = planes > 3 ? _mm256_loadu_ps(src[3] + i) : zero;
    const __m256 ab_low = _mm256_unpacklo_ps(a, b), ab_high = _mm256_unpackhi_ps(a, b);
    const __m256 cd_low = _mm256_unpacklo_ps(c, d), cd_high = _mm256_unpackhi_ps(c, d);
    const __m256 p04 = _mm256_shuffle_ps(ab_low, cd_low, 0x44);
    const __m256 p15 = _mm256_shuffle_ps(ab_low, cd_low, 0xee);
    const __m256 p26 = _mm256_shuffle_ps(ab_high, cd_high, 0x44);
    const __m256 p37 = _mm256_shuffle_ps(ab_high, cd_high, 0xee);
    float* at = out + 4 * i;
    _mm256_storeu_ps(at, _mm256_permute2f128_ps(p04, p15, 0x20));
    _mm256_storeu_ps(at + 8, _mm256_permute2f128_ps(p26, p37, 0x20));
    _mm256_storeu_ps(at + 16, _mm256_permute2f128_ps(p04, p15, 0x31));
    _mm256_storeu_ps(at + 24, _mm256_permute2f128_ps(p26, p37, 0x31));
    if (i == last) break;
  }
}

// Eight pixels of three channels: each of the three results takes lanes of all planes.
RN_AVX2 void interleave3(const float* const* src, int count, float* out) {
  const __m256i red[3] = {_mm256_setr_epi32(0, 0, 0, 1, 0, 0, 2, 0),
                          _mm256_setr_epi32(0, 3, 0, 0, 4, 0, 0, 5),
                          _mm256_setr_epi32(0, 0, 6, 0, 0, 7, 0, 0)};
  const __m256i green[3] = {_mm256_setr_epi32(0, 0, 0, 0, 1, 0, 0, 2),
                            _mm256_setr_epi32(0, 0, 3, 0, 0, 4, 0, 0),
                            _mm256_setr_epi32(5, 0, 0, 6, 0, 0, 7, 0)};
  const __m256i blue[3] = {_mm256_setr_epi32(0, 0, 0, 0, 0, 1, 0, 0),
                           _mm256_setr_epi32(2, 0, 0, 3, 0, 0, 4, 0),
                           _mm256_setr_epi32(0, 5, 0, 0, 6, 0, 0, 7)};
  for (int i = 0, last = count - 8;; i = i + 8 < last ? i + 8 : last) {
    const __m256 r = _mm256_loadu_ps(src[0] + i), g = _mm256_loadu_ps(src[1] + i);
    const __m256 b = _mm256_loadu_ps(src[2] + i);
    float* at = out + 3 * i;
    const __m256 first = _mm256_blend_ps(_mm256_permutevar8x32_ps(r, red[0]),
                                         _mm256_permutevar8x32_ps(g, green[0]), 0x92);
    _mm256_storeu_ps(at, _mm256_blend_ps(first, _mm256_permutevar8x32_ps(b, blue[0]), 0x24));
    const __m256 second = _mm256_blend_ps(_mm256_permutevar8x32_ps(r, red[1]),
                                          _mm256_permutevar8x32_ps(g, green[1]), 0x24);
    _mm256_storeu_ps(at + 8, _mm256_blend_ps(second, _mm256_permutevar8x32_ps(b, blue[1]), 0x49));
    const __m256 third = _mm256_blend_ps(_mm256_permutevar8x32_ps(r, red[2]),
                                         _mm256_permutevar8x32_ps(g, green[2]), 0x49);
    _mm256_storeu_ps(at + 16, _mm256_blend_ps(third, _mm256_permutevar8x32_ps(b, blue[2]), 0x92));
    if (i == last) break;
  }
}

void interleave(const float* const* src, int planes, int channels, int count, float* out) {
  if (channels == 4 && count >= 8)
    interleave4(src, planes, count, out);
  else if (channels == 3 && planes == 3 && count >= 8)
    interleave3(src, count, out);
  else
    portable_rows().interleave(src, planes, channels, count, out);
}

}  // namespace

const RowKernels* avx2_rows() {
  static const RowKernels kernels = {scale_row,  pair_bytes,   float16,    bfloat16, blend_bytes,
                                     blend_floats, reduce_rgb, reduce_plane, interleave};
  static const bool there = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return there ? &kernels : nullptr;
}

}  // namespace rn

#else

namespace rn {
const RowKernels* avx2_rows() { return nullptr; }
}  // namespace rn

#endif

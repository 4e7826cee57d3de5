// The row kernels for AVX2 and F16C: eight pixels at a time, the same operations in the same order
// as rows.cpp, no fused multiply-add. A tail is done by a last group that overlaps the one before.
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

// The groups of eight that cover [0, count): 0, 8, ..., count - 8.
inline int next_group(int i, int count) { return i + 8 >= count ? count : (i + 16 > count ? count - 8 : i + 8); }

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

// One output pixel in four lanes, the last one of them idle.
RN_AVX2 inline __m128 reduced(const float* at, int step, const float* weight, int taps) {
  __m128 even = _mm_setzero_ps(), odd = _mm_setzero_ps();
  int k = 0;
  for (; k + 1 < taps; k += 2, at += 2 * step) {
    even = _mm_add_ps(even, _mm_mul_ps(_mm_broadcast_ss(weight + k), _mm_loadu_ps(at)));
    odd = _mm_add_ps(odd, _mm_mul_ps(_mm_broadcast_ss(weight + k + 1), _mm_loadu_ps(at + step)));
  }
  if (k < taps)
    even = _mm_add_ps(even, _mm_mul_ps(_mm_broadcast_ss(weight + k), _mm_loadu_ps(at)));
  return _mm_add_ps(even, odd);
}

RN_AVX2 void reduce_rgb(const float* row, int step, const Taps& taps, int count,
                        float* const* out) {
  int i = 0;
  for (; i + 4 <= count; i += 4) {
    __m128 p[4];
    for (int j = 0; j < 4; ++j)
      p[j] = reduced(row + taps.first[i + j] * step, step, taps.weight + (i + j) * taps.most,
                     taps.count[i + j]);
    _MM_TRANSPOSE4_PS(p[0], p[1], p[2], p[3]);
    for (int c = 0; c < 3; ++c) _mm_storeu_ps(out[c] + i, p[c]);
  }
  for (; i < count; ++i) {
    float pixel[4];
    _mm_storeu_ps(pixel, reduced(row + taps.first[i] * step, step, taps.weight + i * taps.most,
                                 taps.count[i]));
    for (int c = 0; c < 3; ++c) out[c][i] = pixel[c];
  }
}

void reduce_plane(const float* row, int step, const Taps& taps, int count, float* out) {
  portable_rows().reduce_plane(row, step, taps, count, out);
}

RN_AVX2 void interleave4(const float* const* src, int planes, int count, float* out) {
  const __m256 zero = _mm256_setzero_ps();
  for (int i = 0; i < count; i = next_group(i, count)) {
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
  }
}

void interleave(const float* const* src, int planes, int channels, int count, float* out) {
  if (channels == 4 && count >= 8)
    interleave4(src, planes, count, out);
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

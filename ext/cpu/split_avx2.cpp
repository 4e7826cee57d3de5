// Bytes of pixels into planes for AVX2, mirrored or not, sixteen at a time; the last group of a row
// overlaps the one before, and rows shorter than one are left to the portable kernel.
#include "blocks.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define RN_AVX2 __attribute__((target("avx2")))
#define RN_INLINE RN_AVX2 __attribute__((always_inline)) inline

namespace rn {
namespace {

RN_INLINE __m128i load16(const u8* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}
RN_INLINE void store16(u8* at, __m128i x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(at), x); }

RN_INLINE __m128i reversed16(__m128i x) {
  return _mm_shuffle_epi8(x, _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
}

template <bool mirrored>
RN_AVX2 void split_planes(const BytesIn& in, u8* const* planes, i64 out_row) {
  const int rows = in.rows, last = in.count - 16;
  const i64 row = in.row;
  for (int c = 0; c < in.channels; ++c) {
    const u8* from = in.source + c * in.channel;
    u8* to = planes[c];
    if (last <= 16) {  // two groups, no loop
      const i64 second = mirrored ? -last : last, first = mirrored ? -15 : 0;
      for (int r = 0; r < rows; ++r, from += row, to += out_row) {
        const __m128i p = load16(from + first), q = load16(from + first + second);
        store16(to, mirrored ? reversed16(p) : p);
        store16(to + last, mirrored ? reversed16(q) : q);
      }
      continue;
    }
    for (int r = 0; r < rows; ++r, from += row, to += out_row)
      for (int i = 0;; i = i + 16 < last ? i + 16 : last) {
        store16(to + i, mirrored ? reversed16(load16(from - i - 15)) : load16(from + i));
        if (i == last) break;
      }
  }
}

// Which of 16 bytes go where for channel c of interleaved pixels: part k of three 16-byte parts.
RN_INLINE __m128i rgb_mask(int c, int k) {
  alignas(16) i8 mask[16] = {};
  for (int i = 0; i < 16; ++i) {
    const int at = 3 * i + c - 16 * k;
    mask[i] = static_cast<i8>(at >= 0 && at < 16 ? at : -128);
  }
  return _mm_load_si128(reinterpret_cast<const __m128i*>(mask));
}

template <bool mirrored>
RN_AVX2 void split_rgb(const BytesIn& in, u8* const* planes, i64 out_row) {
  __m128i mask[3][3];
  u8* to[3];
  for (int c = 0; c < 3; ++c) {
    for (int k = 0; k < 3; ++k) mask[c][k] = rgb_mask(c, k);
    to[c] = planes[c];
  }
  const int rows = in.rows, last = in.count - 16;
  const u8* from = in.source;
  i64 start = 0;
  for (int r = 0; r < rows; ++r, from += in.row, start += out_row)
    for (int i = 0;; i = i + 16 < last ? i + 16 : last) {
      const u8* at = mirrored ? from - 3 * (i + 15) : from + 3 * i;
      const __m128i p = load16(at), q = load16(at + 16), s = load16(at + 32);
      for (int c = 0; c < 3; ++c) {
        const __m128i x = _mm_or_si128(
            _mm_or_si128(_mm_shuffle_epi8(p, mask[c][0]), _mm_shuffle_epi8(q, mask[c][1])),
            _mm_shuffle_epi8(s, mask[c][2]));
        store16(to[c] + start + i, mirrored ? reversed16(x) : x);
      }
      if (i == last) break;
    }
}

}  // namespace

void split_avx2(const BytesIn& in, u8* const* planes, i64 out_row) {
  const bool is_rgb = in.channels == 3 && in.channel == 1;
  if (in.count < 16)
    portable_blocks().split(in, planes, out_row);
  else if (in.pixel == 1)
    split_planes<false>(in, planes, out_row);
  else if (in.pixel == -1)
    split_planes<true>(in, planes, out_row);
  else if (is_rgb && in.pixel == 3)
    split_rgb<false>(in, planes, out_row);
  else if (is_rgb && in.pixel == -3)
    split_rgb<true>(in, planes, out_row);
  else
    portable_blocks().split(in, planes, out_row);
}

}  // namespace rn

#endif

// The block kernels for AVX2 and F16C: eight pixels at a time, the same operations in the same
// order as blocks.cpp, no fused multiply-add. Where a row is not a whole number of groups, its last
// group overlaps the one before; rows shorter than one group are left to the portable kernels.
#include "blocks.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define RN_AVX2 __attribute__((target("avx2,f16c")))
#define RN_INLINE RN_AVX2 __attribute__((always_inline)) inline

namespace rn {
namespace {

RN_INLINE __m256 widen(__m128i eight_bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(eight_bytes));
}

RN_INLINE __m256 scaled(__m256 x, __m256 scale, __m256 shift) {
  return _mm256_add_ps(_mm256_mul_ps(x, scale), shift);
}

// The upper halves of floats that were rounded to bfloat16, still in 32-bit lanes.
RN_INLINE __m256i rounded_bfloat16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  return _mm256_srli_epi32(up, 16);
}

template <i32 dtype, bool streams = false>
RN_INLINE void store(void* plane, i64 at, __m256 x) {
  if (dtype == FLOAT32) {
    float* to = static_cast<float*>(plane) + at;
    streams ? _mm256_stream_ps(to, x) : _mm256_storeu_ps(to, x);
    return;
  }
  __m128i half;
  if (dtype == FLOAT16) {
    half = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
  } else {
    const __m256i high = rounded_bfloat16(x);
    half = _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
  }
  __m128i* to = reinterpret_cast<__m128i*>(static_cast<u16*>(plane) + at);
  streams ? _mm_stream_si128(to, half) : _mm_storeu_si128(to, half);
}

// Sixteen values: one store of 32 bytes is faster than two narrow ones.
template <i32 dtype, bool streams>
RN_INLINE void store_pair(void* plane, i64 at, __m256 x, __m256 y) {
  if (dtype == FLOAT32) {
    store<dtype, streams>(plane, at, x);
    store<dtype, streams>(plane, at + 8, y);
    return;
  }
  __m256i halves;
  if (dtype == FLOAT16) {
    halves = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)),
        _mm256_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT), 1);
  } else {
    halves = _mm256_permute4x64_epi64(
        _mm256_packus_epi32(rounded_bfloat16(x), rounded_bfloat16(y)), 0xd8);
  }
  __m256i* to = reinterpret_cast<__m256i*>(static_cast<u16*>(plane) + at);
  streams ? _mm256_stream_si256(to, halves) : _mm256_storeu_si256(to, halves);
}

// Groups of eight cover a row at 0, 8, ..., last = count - 8.
inline int next_group(int i, int last) { return i + 8 < last ? i + 8 : last; }

RN_INLINE __m256 eight(const u8* at) {
  return widen(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
}
RN_INLINE __m256 eight(const float* at) { return _mm256_loadu_ps(at); }

template <i32 dtype, bool streams, class T>
RN_AVX2 void convert_as(const T* source, i64 count, float scale, float shift, void* out) {
  const __m256 a = _mm256_set1_ps(scale), b = _mm256_set1_ps(shift);
  i64 i = 0;
  for (; i + 32 <= count; i += 32) {
    store_pair<dtype, streams>(out, i, scaled(eight(source + i), a, b),
                               scaled(eight(source + i + 8), a, b));
    store_pair<dtype, streams>(out, i + 16, scaled(eight(source + i + 16), a, b),
                               scaled(eight(source + i + 24), a, b));
  }
  for (; i + 8 <= count; i += 8) store<dtype, streams>(out, i, scaled(eight(source + i), a, b));
  for (; i < count; ++i)
    put(out, i, dtype, static_cast<float>(source[i]) * scale + shift);
}

template <i32 dtype, class T>
void convert_as(const T* source, i64 count, float scale, float shift, const RunOut& out) {
  out.streams ? convert_as<dtype, true>(source, count, scale, shift, out.at)
              : convert_as<dtype, false>(source, count, scale, shift, out.at);
}

template <class T>
void convert(const T* source, i64 count, float scale, float shift, const RunOut& out) {
  if (out.dtype == FLOAT32)
    convert_as<FLOAT32>(source, count, scale, shift, out);
  else if (out.dtype == FLOAT16)
    convert_as<FLOAT16>(source, count, scale, shift, out);
  else
    convert_as<BFLOAT16>(source, count, scale, shift, out);
}

template <i32 dtype, bool streams>
RN_AVX2 void masked_as(const u8* source, const Mask& mask, i64 rows, float scale, float shift,
                       void* out) {
  const __m256 a = _mm256_set1_ps(scale), b = _mm256_set1_ps(shift);
  const __m256 other = _mm256_set1_ps(mask.value);
  const float* columns = reinterpret_cast<const float*>(mask.columns);
  const int width = mask.width;
  const auto group = [&](i64 at, int column) RN_AVX2 {
    return _mm256_blendv_ps(scaled(eight(source + at), a, b), other,
                            _mm256_loadu_ps(columns + column));
  };
  for (i64 start = 0; start < rows * width; start += width) {
    int i = 0;
    for (; i + 16 <= width; i += 16)
      store_pair<dtype, streams>(out, start + i, group(start + i, i), group(start + i + 8, i + 8));
    if (i < width) store<dtype, streams>(out, start + i, group(start + i, i));
  }
}

template <i32 dtype>
void masked_as(const u8* source, const Mask& mask, i64 rows, float scale, float shift,
               const RunOut& out) {
  out.streams ? masked_as<dtype, true>(source, mask, rows, scale, shift, out.at)
              : masked_as<dtype, false>(source, mask, rows, scale, shift, out.at);
}

void masked(const u8* source, const Mask& mask, i64 rows, float scale, float shift,
            const RunOut& out) {
  if (out.dtype == FLOAT32)
    masked_as<FLOAT32>(source, mask, rows, scale, shift, out);
  else if (out.dtype == FLOAT16)
    masked_as<FLOAT16>(source, mask, rows, scale, shift, out);
  else
    masked_as<BFLOAT16>(source, mask, rows, scale, shift, out);
}

// What all pixels of a resampling share. Element numbers are exact in float: below 2^24.
struct Lanes {
  __m256 right, bottom, stride;
};

RN_INLINE __m256i upper_left(const Lanes& lanes, __m256 sx, __m256 sy, __m256* fx, __m256* fy,
                             bool nearest) {
  const __m256 low = _mm256_set1_ps(-1.0f);
  sx = _mm256_min_ps(_mm256_max_ps(sx, low), lanes.right);
  sy = _mm256_min_ps(_mm256_max_ps(sy, low), lanes.bottom);
  const __m256 left = nearest ? _mm256_round_ps(sx, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
                              : _mm256_floor_ps(sx);
  const __m256 top = nearest ? _mm256_round_ps(sy, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
                             : _mm256_floor_ps(sy);
  *fx = _mm256_sub_ps(sx, left);
  *fy = _mm256_sub_ps(sy, top);
  return _mm256_cvttps_epi32(_mm256_add_ps(_mm256_mul_ps(top, lanes.stride), left));
}

RN_INLINE __m256 mixed(__m256 a, __m256 b, __m256 weight) {
  return _mm256_add_ps(a, _mm256_mul_ps(_mm256_sub_ps(b, a), weight));
}

RN_INLINE __m256 bilinear8(__m256 v00, __m256 v01, __m256 v10, __m256 v11, __m256 fx, __m256 fy) {
  return mixed(mixed(v00, v01, fx), mixed(v10, v11, fx), fy);
}

// Gathers into a cleared register: into an undefined one they would wait for its last value.
RN_INLINE __m256i gathered(const u16* origin, __m256i at) {
  return _mm256_mask_i32gather_epi32(_mm256_setzero_si256(), reinterpret_cast<const int*>(origin),
                                     at, _mm256_set1_epi32(-1), 2);
}
RN_INLINE __m256 gathered(const float* origin, __m256i at) {
  return _mm256_mask_i32gather_ps(_mm256_setzero_ps(), origin, at,
                                  _mm256_castsi256_ps(_mm256_set1_epi32(-1)), 4);
}

// A byte as 2^23 + byte: differences of such numbers are those of the bytes, without conversions.
RN_INLINE __m256 raised(__m256i bytes) {
  return _mm256_castsi256_ps(_mm256_or_si256(bytes, _mm256_set1_epi32(0x4b000000)));
}

// `origin` is the element of the pixel (0, 0).
RN_INLINE __m256 sample(const u16* origin, int, __m256i at, __m256 fx, __m256 fy, bool nearest) {
  const __m256i byte = _mm256_set1_epi32(0xff);
  const __m256 base = _mm256_set1_ps(8388608.0f);
  const __m256i four = gathered(origin, at);
  const __m256 v00 = raised(_mm256_and_si256(four, byte));
  if (nearest) return _mm256_sub_ps(v00, base);
  const __m256 v10 = raised(_mm256_and_si256(_mm256_srli_epi32(four, 8), byte));
  const __m256 v01 = raised(_mm256_and_si256(_mm256_srli_epi32(four, 16), byte));
  const __m256 v11 = raised(_mm256_srli_epi32(four, 24));
  const __m256 top = _mm256_add_ps(_mm256_sub_ps(v00, base), _mm256_mul_ps(_mm256_sub_ps(v01, v00), fx));
  const __m256 bottom =
      _mm256_add_ps(_mm256_sub_ps(v10, base), _mm256_mul_ps(_mm256_sub_ps(v11, v10), fx));
  return mixed(top, bottom, fy);
}

RN_INLINE __m256 sample(const float* origin, int stride, __m256i at, __m256 fx, __m256 fy,
                        bool nearest) {
  const __m256 v00 = gathered(origin, at);
  if (nearest) return v00;
  const __m256 v01 = gathered(origin + 1, at);
  const __m256 v10 = gathered(origin + stride, at);
  const __m256 v11 = gathered(origin + stride + 1, at);
  return bilinear8(v00, v01, v10, v11, fx, fy);
}

constexpr int GROUPS = 8;  // of eight columns that are resampled together, row by row

// The products of a few groups of columns with the map's two slopes, the same for every row.
struct Columns {
  float ax[GROUPS][8], ay[GROUPS][8];
  int start[GROUPS], groups;
};

RN_AVX2 Columns columns_from(const AffineBlock& in, int first) {
  Columns found;
  found.groups = 0;
  const float center = static_cast<float>(in.width - 1) * 0.5f;
  for (int i = first; found.groups < GROUPS; i = next_group(i, in.count - 8)) {
    const int k = found.groups++;
    found.start[k] = i;
    for (int j = 0; j < 8; ++j) {
      const float x = static_cast<float>(in.first_x + (i + j) * in.step_x) - center;
      found.ax[k][j] = in.map.m[0] * x;
      found.ay[k][j] = in.map.m[3] * x;
    }
    if (i == in.count - 8) break;
  }
  return found;
}

template <i32 dtype, bool nearest, int channels, class T>
RN_AVX2 void resample(const AffineBlock& in, const Columns& columns, const T* const* planes,
                      const Scaling& scaling, const BlockOut& out) {
  Lanes lanes;
  lanes.right = _mm256_set1_ps(static_cast<float>(in.width));
  lanes.bottom = _mm256_set1_ps(static_cast<float>(in.height));
  lanes.stride = _mm256_set1_ps(static_cast<float>(in.stride));
  const T* origin[channels];
  void* plane[channels];
  for (int c = 0; c < channels; ++c) {
    origin[c] = planes[c] + in.stride + 1;
    plane[c] = out.planes[c];
  }
  const Scaling s = scaling;
  const int rows = in.rows, groups = columns.groups, stride = in.stride;
  i64 to = 0;
  for (int r = 0; r < rows; ++r, to += out.row) {
    const RowMap map = row_map(in.map, in.first_y + r * in.step_y, in.height, in.width);
    const __m256 bx = _mm256_set1_ps(map.bx), by = _mm256_set1_ps(map.by);
    for (int k = 0; k < groups; ++k) {
      __m256 fx, fy;
      const __m256 sx = _mm256_add_ps(_mm256_loadu_ps(columns.ax[k]), bx);
      const __m256 sy = _mm256_add_ps(_mm256_loadu_ps(columns.ay[k]), by);
      const __m256i at = upper_left(lanes, sx, sy, &fx, &fy, nearest);
      for (int c = 0; c < channels; ++c) {
        const __m256 value = sample(origin[c], stride, at, fx, fy, nearest);
        store<dtype>(plane[c], to + columns.start[k],
                     scaled(value, _mm256_set1_ps(s.scale[c]), _mm256_set1_ps(s.shift[c])));
      }
    }
  }
}

template <i32 dtype, bool nearest, class T>
RN_AVX2 void resample(const AffineBlock& in, const T* const* planes, const Scaling& scaling,
                      const BlockOut& out) {
  for (int first = 0; first < in.count; first += 8 * GROUPS) {
    const Columns columns = columns_from(in, first < in.count - 8 ? first : in.count - 8);
    switch (in.channels) {
      case 1: resample<dtype, nearest, 1>(in, columns, planes, scaling, out); break;
      case 2: resample<dtype, nearest, 2>(in, columns, planes, scaling, out); break;
      case 3: resample<dtype, nearest, 3>(in, columns, planes, scaling, out); break;
      default: resample<dtype, nearest, 4>(in, columns, planes, scaling, out);
    }
  }
}

template <class T>
void resample_as(const AffineBlock& in, const T* const* planes, const Scaling& scaling,
                 const BlockOut& out) {
  if (out.dtype == FLOAT32)
    in.nearest ? resample<FLOAT32, true>(in, planes, scaling, out)
               : resample<FLOAT32, false>(in, planes, scaling, out);
  else if (out.dtype == FLOAT16)
    in.nearest ? resample<FLOAT16, true>(in, planes, scaling, out)
               : resample<FLOAT16, false>(in, planes, scaling, out);
  else
    in.nearest ? resample<BFLOAT16, true>(in, planes, scaling, out)
               : resample<BFLOAT16, false>(in, planes, scaling, out);
}

// Left to the portable kernels: short rows, and planes whose elements float cannot count.
bool is_unfit(const AffineBlock& in) {
  return in.count < 8 || i64(in.height + 3) * in.stride > (1 << 24);
}

void affine_pairs(const AffineBlock& in, const Scaling& scaling, const BlockOut& out) {
  if (is_unfit(in))
    portable_blocks().affine_pairs(in, scaling, out);
  else
    resample_as(in, in.pairs, scaling, out);
}

void affine_floats(const AffineBlock& in, const Scaling& scaling, const BlockOut& out) {
  if (is_unfit(in))
    portable_blocks().affine_floats(in, scaling, out);
  else
    resample_as(in, in.planes, scaling, out);
}

}  // namespace

const BlockKernels* avx2_blocks() {
  static const BlockKernels kernels = {split_avx2, convert<u8>, convert<float>, masked,
                                       affine_pairs, affine_floats};
  return &kernels;
}

}  // namespace rn

#else

namespace rn {
const BlockKernels* avx2_blocks() { return nullptr; }
}  // namespace rn

#endif

// Dropout and noise on the device. Forward and backward of dropout are the same: the mask is drawn
// again, never stored.
#include "renaissance/dropout.h"

using namespace rn;

namespace {

constexpr i64 WIDTH = 8;  // two quads: 16 bytes of 16-bit numbers, 32 of float32

template <i32 D>
__device__ float get(const void* x, i64 i) {
  return load_float(x, D, i);
}

template <i32 D>
__device__ void put(void* y, i64 i, float value) {
  if (D == FLOAT32) {
    static_cast<float*>(y)[i] = value;
  } else {
    static_cast<u16*>(y)[i] = D == BFLOAT16 ? to_bfloat16(value) : to_float16(value);
  }
}

template <i32 D>
__device__ void get_wide(const void* x, i64 i, float* values) {
  if (D == FLOAT32) {
    const float4* from = reinterpret_cast<const float4*>(static_cast<const float*>(x) + i);
    const float4 a = from[0], b = from[1];
    values[0] = a.x, values[1] = a.y, values[2] = a.z, values[3] = a.w;
    values[4] = b.x, values[5] = b.y, values[6] = b.z, values[7] = b.w;
    return;
  }
  const uint4 held = *reinterpret_cast<const uint4*>(static_cast<const u16*>(x) + i);
  const u32 pairs[4] = {held.x, held.y, held.z, held.w};
  for (int k = 0; k < 4; ++k) {
    const u16 low = static_cast<u16>(pairs[k]), high = static_cast<u16>(pairs[k] >> 16);
    values[2 * k] = D == BFLOAT16 ? from_bfloat16(low) : from_float16(low);
    values[2 * k + 1] = D == BFLOAT16 ? from_bfloat16(high) : from_float16(high);
  }
}

template <i32 D>
__device__ void put_wide(void* y, i64 i, const float* values) {
  if (D == FLOAT32) {
    float4* to = reinterpret_cast<float4*>(static_cast<float*>(y) + i);
    to[0] = make_float4(values[0], values[1], values[2], values[3]);
    to[1] = make_float4(values[4], values[5], values[6], values[7]);
    return;
  }
  u32 pairs[4];
  for (int k = 0; k < 4; ++k) {
    const float a = values[2 * k], b = values[2 * k + 1];
    const u16 low = D == BFLOAT16 ? to_bfloat16(a) : to_float16(a);
    const u16 high = D == BFLOAT16 ? to_bfloat16(b) : to_float16(b);
    pairs[k] = low | static_cast<u32>(high) << 16;
  }
  *reinterpret_cast<uint4*>(static_cast<u16*>(y) + i) =
      make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

__device__ bool is_wide(const void* x, const void* y, const SampleLayout& layout) {
  const u64 places = reinterpret_cast<u64>(x) | reinterpret_cast<u64>(y);
  return layout.channels == 1 && layout.inner % WIDTH == 0 && places % 16 == 0;
}

// y = change(words, x) quad by quad; without x the values are zero.
template <i32 D, class Change>
__device__ void by_quads(const void* x, void* y, i64 rows, const SampleLayout& layout,
                         const LayerDraw& draw, const Change& change) {
  const i64 stride = static_cast<i64>(gridDim.x) * blockDim.x;
  const i64 first = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (is_wide(x, y, layout)) {
    for (i64 i = first * WIDTH; i < rows * layout.inner; i += stride * WIDTH) {
      const i64 row = quotient(i, layout.inner), quad = (i - row * layout.inner) / 4;
      float values[WIDTH] = {};
      if (x) get_wide<D>(x, i, values);
      change(quad_words(draw, row, quad), values);
      change(quad_words(draw, row, quad + 1), values + 4);
      put_wide<D>(y, i, values);
    }
    return;
  }
  const i64 quads = layout.quads();
  for (i64 unit = first; unit < rows * quads; unit += stride) {
    const i64 row = quotient(unit, quads), start = row * layout.inner;
    const Quad at = quad_of(layout, unit - row * quads);
    float values[4] = {};
    for (int k = 0; k < 4; ++k) {  // bounds that are known keep arrays in registers
      if (x && k < at.size) values[k] = get<D>(x, start + at.at[k]);
    }
    change(quad_words(draw, row, at.quad), values);
    for (int k = 0; k < 4; ++k) {
      if (k < at.size) put<D>(y, start + at.at[k], values[k]);
    }
  }
}

template <class Change>
__device__ void by_type(const void* x, void* y, i64 rows, const SampleLayout& layout, i32 dtype,
                        const LayerDraw& draw, const Change& change) {
  if (dtype == FLOAT32) by_quads<FLOAT32>(x, y, rows, layout, draw, change);
  if (dtype == BFLOAT16) by_quads<BFLOAT16>(x, y, rows, layout, draw, change);
  if (dtype == FLOAT16) by_quads<FLOAT16>(x, y, rows, layout, draw, change);
}

}  // namespace

extern "C" __global__ void dropout(const void* x, void* y, i64 rows, i64 inner, i64 channels,
                                   i32 dtype, const Scalars* scalars, u64 layer, u32 threshold,
                                   float scale) {
  const SampleLayout layout{inner, channels, inner / channels};
  by_type(x, y, rows, layout, dtype, layer_draw(*scalars, layer), Drop{threshold, scale});
}

extern "C" __global__ void noise(void* y, i64 rows, i64 inner, i64 channels, i32 dtype,
                                 const Scalars* scalars, u64 layer) {
  const SampleLayout layout{inner, channels, inner / channels};
  by_type(nullptr, y, rows, layout, dtype, layer_draw(*scalars, layer), Gauss{});
}

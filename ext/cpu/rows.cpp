// The portable row kernels: what every other version of them must equal bit for bit.
#include "rows.h"

#include <atomic>

#include "program.h"

namespace rn {
namespace {

void bytes(const u8* src, i64 stride, int count, float scale, float shift, float* out) {
  for (int i = 0; i < count; ++i) out[i] = static_cast<float>(src[i * stride]) * scale + shift;
}

void rgb(const u8* src, int step, int count, const float* scale, const float* shift,
         float* const* out) {
  for (int c = 0; c < 3; ++c) bytes(src + c, 3 * step, count, scale[c], shift[c], out[c]);
}

void floats(const float* src, int step, int count, float scale, float shift, float* out) {
  for (int i = 0; i < count; ++i) out[i] = src[i * step] * scale + shift;
}

void scale_row(float* x, int count, float scale, float shift) {
  for (int i = 0; i < count; ++i) x[i] = x[i] * scale + shift;
}

// fetch(plane offset, dy, dx) reads one neighbour; offset is that of the upper left one.
template <class Fetch>
void affine_row(const AffineRow& row, float scale, float shift, float* out, const Fetch& fetch) {
  for (int i = 0; i < row.count; ++i) {
    const float x = static_cast<float>(row.first + i * row.step) - row.center;
    const float sx = within(row.map.ax * x + row.map.bx, row.width);
    const float sy = within(row.map.ay * x + row.map.by, row.height);
    const float left = row.nearest ? round_even(sx) : floor_of(sx);
    const float top = row.nearest ? round_even(sy) : floor_of(sy);
    const int at = (static_cast<int>(top) + 1) * row.stride + static_cast<int>(left) + 1;
    const float value = row.nearest
                            ? fetch(at, 0, 0)
                            : bilinear(fetch(at, 0, 0), fetch(at, 0, 1), fetch(at, 1, 0),
                                       fetch(at, 1, 1), sx - left, sy - top);
    out[i] = value * scale + shift;
  }
}

void affine_pairs(const AffineRow& row, const u16* const* planes, int channels, const float* scale,
                  const float* shift, float* const* out) {
  for (int c = 0; c < channels; ++c) {
    const u16* plane = planes[c];
    affine_row(row, scale[c], shift[c], out[c], [plane](int at, int dy, int dx) {
      return static_cast<float>((plane[at + dx] >> (8 * dy)) & 0xff);
    });
  }
}

void affine_floats(const AffineRow& row, const float* const* planes, int channels,
                   const float* scale, const float* shift, float* const* out) {
  for (int c = 0; c < channels; ++c) {
    const float* plane = planes[c];
    const int stride = row.stride;
    affine_row(row, scale[c], shift[c], out[c],
               [plane, stride](int at, int dy, int dx) { return plane[at + dy * stride + dx]; });
  }
}

void pair_bytes(const u8* upper, const u8* lower, int count, u16* out) {
  for (int i = 0; i < count; ++i) out[i] = static_cast<u16>(upper[i] | (lower[i] << 8));
}

void float16(const float* src, int count, u16* out) {
  for (int i = 0; i < count; ++i) out[i] = to_float16(src[i]);
}

void bfloat16(const float* src, int count, u16* out) {
  for (int i = 0; i < count; ++i) out[i] = to_bfloat16(src[i]);
}

template <class T>
void blend(const T* const* rows, const float* weight, int taps, int count, float* out) {
  for (int i = 0; i < count; ++i) {
    float sum = weight[0] * static_cast<float>(rows[0][i]);
    for (int k = 1; k < taps; ++k) sum = sum + weight[k] * static_cast<float>(rows[k][i]);
    out[i] = sum;
  }
}

float reduced(const float* at, int step, const float* weight, int taps) {
  float even = 0.0f, odd = 0.0f;
  for (int k = 0; k < taps; k += 2) {
    even = even + weight[k] * at[k * step];
    if (k + 1 < taps) odd = odd + weight[k + 1] * at[(k + 1) * step];
  }
  return even + odd;
}

void reduce_plane(const float* row, int step, const Taps& taps, int count, float* out) {
  for (int i = 0; i < count; ++i)
    out[i] = reduced(row + taps.first[i] * step, step, taps.weight + i * taps.most, taps.count[i]);
}

void reduce_rgb(const float* row, int step, const Taps& taps, int count, float* const* out) {
  for (int c = 0; c < 3; ++c) reduce_plane(row + c, step, taps, count, out[c]);
}

void interleave(const float* const* src, int planes, int channels, int count, float* out) {
  for (int i = 0; i < count; ++i)
    for (int c = 0; c < channels; ++c) out[i * channels + c] = c < planes ? src[c][i] : 0.0f;
}

std::atomic<const RowKernels*> chosen{nullptr};

}  // namespace

const RowKernels& portable_rows() {
  static const RowKernels kernels = {
      bytes,       rgb,      floats,   scale_row,   affine_pairs, affine_floats, pair_bytes,
      float16,     bfloat16, blend<u8>, blend<float>, reduce_rgb, reduce_plane, interleave};
  return kernels;
}

const RowKernels& row_kernels() {
  const RowKernels* kernels = chosen.load(std::memory_order_relaxed);
  if (kernels == nullptr) {
    kernels = avx2_rows() ? avx2_rows() : &portable_rows();
    chosen.store(kernels, std::memory_order_relaxed);
  }
  return *kernels;
}

bool use_simd(bool wanted) {
  chosen.store(wanted && avx2_rows() ? avx2_rows() : &portable_rows(), std::memory_order_relaxed);
  return &row_kernels() != &portable_rows();
}

}  // namespace rn

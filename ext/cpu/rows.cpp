// The portable row kernels: what every other version of them must equal bit for bit.
#include "rows.h"

#include <atomic>

#include "program.h"

namespace rn {
namespace {

void scale_row(float* x, int count, float scale, float shift) {
  for (int i = 0; i < count; ++i) x[i] = x[i] * scale + shift;
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
  float even = weight[0] * at[0], odd = weight[1] * at[step];
  for (int k = 2; k < taps; k += 2) {
    even = even + weight[k] * at[k * step];
    odd = odd + weight[k + 1] * at[(k + 1) * step];
  }
  return even + odd;
}

void reduce_plane(const float* row, int step, const Taps& taps, int count, float* out) {
  for (int i = 0; i < count; ++i)
    out[i] = reduced(row + taps.first[i] * step, step, taps.weight + i * taps.most, taps.count);
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
  static const RowKernels kernels = {scale_row,  pair_bytes,   float16,    bfloat16, blend<u8>,
                                     blend<float>, reduce_rgb, reduce_plane, interleave};
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
  return simd_in_use();
}

bool simd_in_use() { return &row_kernels() != &portable_rows(); }

}  // namespace rn

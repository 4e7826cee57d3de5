// Kernels over one row of pixels, portable and AVX2 with equal bits; chosen at run time.
#pragma once
#include "renaissance/convert.h"
#include "renaissance/portable.h"

namespace rn {

// One axis of a resize: output pixel o is the sum of `count` input pixels from first[o] on. All have
// the same even count, filled up with zero weights; the pixels there have to be finite.
struct Taps {
  const int* first;
  const float* weight;  // of output pixel o at o * most
  int count, most;
  // Or nullptr: of eight output pixels g to g + 7 after each other, at g * count * 4, the pairs
  // (g, g + 4) to (g + 3, g + 7), each tap as four times the one's weight and four times the other's.
  const float* pairs = nullptr;
};

struct RowKernels {
  // In place: x[i] = x[i] * scale + shift.
  void (*scale)(float* x, int count, float scale, float shift);
  // out[i] = upper[i] | lower[i] << 8
  void (*pair_bytes)(const u8* upper, const u8* lower, int count, u16* out);
  void (*to_float16)(const float* src, int count, u16* out);
  void (*to_bfloat16)(const float* src, int count, u16* out);
  // out[i] = sum of weight[k] * rows[k][i], in order of k.
  void (*blend_bytes)(const u8* const* rows, const float* weight, int taps, int count, float* out);
  void (*blend_floats)(const float* const* rows, const float* weight, int taps, int count,
                       float* out);
  // Output pixels along a row: even taps and odd taps are summed apart, then added. Input pixel p
  // is at row + p * step; the first for pixels of three channels that become three planes.
  void (*reduce_rgb)(const float* row, int step, const Taps& taps, int count, float* const* out);
  void (*reduce_plane)(const float* row, int step, const Taps& taps, int count, float* out);
  // Planes to pixels of `channels` floats, zeros beyond the `planes` given.
  void (*interleave)(const float* const* src, int planes, int channels, int count, float* out);
};

const RowKernels& portable_rows();
const RowKernels* avx2_rows();  // nullptr where the machine or the compiler has no AVX2
const RowKernels& row_kernels();
bool simd_in_use();

}  // namespace rn

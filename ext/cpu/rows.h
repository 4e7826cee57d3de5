// Kernels over one row of pixels, portable and AVX2 with equal bits; chosen at run time.
#pragma once
#include "renaissance/convert.h"
#include "renaissance/view.h"

namespace rn {

// One output row of a resampling: pixel i is column first + i * step of the affine grid.
struct AffineRow {
  RowMap map;
  float center;       // column of the grid's centre
  int first, step, count;
  float height, width;  // of the source
  int stride;           // elements between rows of the bordered planes
  bool nearest;
};

// One axis of a resize: output pixel o is the sum of count[o] input pixels from first[o] on.
struct Taps {
  const int* first;
  const int* count;
  const float* weight;  // of output pixel o at o * most
  int most;
};

struct RowKernels {
  // out[i] = src[i * stride] * scale + shift; stride may be negative.
  void (*bytes)(const u8* src, i64 stride, int count, float scale, float shift, float* out);
  // The same for interleaved RGB, three planes out; step is 1 or -1.
  void (*rgb)(const u8* src, int step, int count, const float* scale, const float* shift,
              float* const* out);
  // out[i] = src[i * step] * scale + shift; step is 1 or -1.
  void (*floats)(const float* src, int step, int count, float scale, float shift, float* out);
  // In place: x[i] = x[i] * scale + shift.
  void (*scale)(float* x, int count, float scale, float shift);
  // Resampling from planes that have one row and column of fill before the picture and two after;
  // `pairs` holds a byte and the one below it in each element.
  void (*affine_pairs)(const AffineRow& row, const u16* const* planes, int channels,
                       const float* scale, const float* shift, float* const* out);
  void (*affine_floats)(const AffineRow& row, const float* const* planes, int channels,
                        const float* scale, const float* shift, float* const* out);
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

}  // namespace rn

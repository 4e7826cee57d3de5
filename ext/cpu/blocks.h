// Kernels over blocks of pixels: move bytes, resample, normalise and store in the wanted type.
//
// Portable and AVX2 versions give the same bits; the choice is made at run time.
#pragma once
#include "renaissance/convert.h"
#include "renaissance/view.h"

namespace rn {

// Where rows go: element `i` of row `r` of channel `c` stands at planes[c] + r * row + i.
struct BlockOut {
  void* planes[MAX_CHANNELS] = {};
  i64 row = 0;
  i32 dtype = FLOAT32;  // Dtype of convert.h
  bool streams = false;  // past the caches: rows are whole groups of STREAM_BYTES, and aligned so

  BlockOut at(int first_row) const;  // the part from that row on
};

constexpr i64 STREAM_BYTES = 32;

// One run of values in the wanted type; `streams` as in BlockOut.
struct RunOut {
  void* at;
  i32 dtype;
  bool streams;
};

// Columns that hold one value whatever was there; the width is a whole number of STREAM_BYTES.
struct Mask {
  const u32* columns;  // all ones, or zero
  int width;
  float value;
};

struct Scaling {
  float scale[MAX_CHANNELS], shift[MAX_CHANNELS];
};

// Rows of source bytes. A mirrored row has a negative pixel stride and starts at its last pixel.
struct BytesIn {
  const u8* source;
  i64 row, pixel, channel;  // strides in bytes
  int rows, count, channels;
};

// An affine map over `rows` x `count` places of the grid: row first_y + r * step_y, column
// first_x + i * step_x. Planes have one row and column of fill before the picture and two after;
// `pairs` hold a byte and the one below it in each element.
struct AffineBlock {
  Affine map;
  int height, width;  // of the grid and the source
  int first_y, step_y, first_x, step_x, rows, count, channels;
  int stride;  // elements between rows of the planes
  bool nearest;
  const u16* pairs[MAX_CHANNELS];
  const float* planes[MAX_CHANNELS];
};

struct BlockKernels {
  // Byte planes, rows `out_row` apart.
  void (*split)(const BytesIn& in, u8* const* planes, i64 out_row);
  // out[i] = source[i] * scale + shift.
  void (*bytes)(const u8* source, i64 count, float scale, float shift, const RunOut& out);
  void (*floats)(const float* source, i64 count, float scale, float shift, const RunOut& out);
  // The same for whole rows of `width` values; where mask[i] is all ones stands `other` instead.
  void (*masked)(const u8* source, const Mask& mask, i64 rows, float scale, float shift,
                 const RunOut& out);
  void (*affine_pairs)(const AffineBlock& in, const Scaling& scaling, const BlockOut& out);
  void (*affine_floats)(const AffineBlock& in, const Scaling& scaling, const BlockOut& out);
};

void split_avx2(const BytesIn& in, u8* const* planes, i64 out_row);  // where there is AVX2

const BlockKernels& portable_blocks();
const BlockKernels* avx2_blocks();  // nullptr where the compiler has no AVX2
const BlockKernels& block_kernels();

inline void put(void* plane, i64 at, i32 dtype, float value) {
  if (dtype == FLOAT32)
    static_cast<float*>(plane)[at] = value;
  else
    static_cast<u16*>(plane)[at] = dtype == FLOAT16 ? to_float16(value) : to_bfloat16(value);
}

inline BlockOut BlockOut::at(int first_row) const {
  BlockOut part = *this;
  const i64 bytes = first_row * row * (dtype == FLOAT32 ? 4 : 2);
  for (void*& plane : part.planes) plane = static_cast<char*>(plane) + bytes;
  return part;
}

}  // namespace rn

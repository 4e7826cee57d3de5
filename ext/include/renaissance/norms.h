// Sums of squares in one fixed order: the same on host and device, for any grid and thread count.
//
// A tensor is cut into chunks of 4,096 elements. In a chunk lane l of 256 adds x*x of elements
// l, l+256, ... in float; the lanes fold by halving; that is the chunk's partial. In the second
// phase lane t adds partials t, t+256, ... in double and the lanes fold by halving.
#pragma once
#include "portable.h"

namespace rn {

constexpr int CHUNK = 4096;
constexpr int LANES = 256;

// Where a chunk stands: row of the table of tensors, and number of the chunk within it.
struct Chunk {
  i32 row;
  i32 number;
};

// A trained tensor: its elements in W, G, M ..., and its slot in N when it has a trust ratio.
struct TensorRow {
  i64 offset;
  i64 count;
  i64 slot;
};

// The elements [begin, end) of the regions that a chunk covers.
struct Stretch {
  i64 begin, end;
};

RN_HD Stretch stretch_of(const TensorRow& row, const Chunk& chunk) {
  const i64 begin = static_cast<i64>(chunk.number) * CHUNK;
  const i64 end = begin + CHUNK;
  return {row.offset + begin, row.offset + (end < row.count ? end : row.count)};
}

// Lane sums to the total. On the device the same pairs meet, with a barrier after each halving.
template <class Number>
RN_HD Number fold_lanes(Number* lane) {
  for (int half = LANES / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lane[l] = lane[l] + lane[l + half];
  }
  return lane[0];
}

// What lane t of the second phase adds.
RN_HD double partial_sum(const float* partials, i64 count, int lane) {
  double sum = 0.0;
  for (i64 i = lane; i < count; i += LANES) sum = sum + static_cast<double>(partials[i]);
  return sum;
}

// The first partial of a lane that is not finite, or `count`.
RN_HD i64 first_bad_partial(const float* partials, i64 count, int lane) {
  for (i64 i = lane; i < count; i += LANES) {
    if (!is_finite(partials[i])) return i;
  }
  return count;
}

}  // namespace rn

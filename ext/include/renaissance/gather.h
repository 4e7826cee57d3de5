// One gradient tensor as the gather reads it: any strides, three float formats.
#pragma once
#include "convert.h"
#include "norms.h"
#include "scalars.h"

namespace rn {

constexpr int MAX_DIMS = 6;  // after the host has merged what can be merged

// Dimensions are in the stored order of the destination (channels-last for convolutions), the last
// one fastest, so destination element i is G[offset + i].
struct GatherRow {
  u64 source;  // address; 0 stands for a gradient of zeros
  i64 offset;  // in G, elements
  i64 count;
  i32 dtype;
  i32 ndim;
  i64 size[MAX_DIMS];
  i64 stride[MAX_DIMS];  // of the source, elements
};

RN_HD bool is_dense(const GatherRow& row) { return row.ndim == 1 && row.stride[0] == 1; }

// Source element of destination element i.
RN_HD i64 source_index(const GatherRow& row, i64 i) {
  i64 index = 0;
  for (int d = row.ndim - 1; d > 0; --d) {
    const i64 rest = i / row.size[d];
    index += (i - rest * row.size[d]) * row.stride[d];
    i = rest;
  }
  return index + i * row.stride[0];
}

RN_HD float gradient_at(const GatherRow& row, i64 i) {
  if (row.source == 0) return 0.0f;
  return load_float(reinterpret_cast<const void*>(row.source), row.dtype, source_index(row, i));
}

}  // namespace rn

// Dropout masks: a pure function of (seed, attempted micro-step, layer, place in the global batch).
//
// Nothing is stored for backward, which draws the same mask again. Launch geometry, memory layout,
// device and number of ranks do not enter.
#pragma once
#include "convert.h"
#include "philox.h"
#include "scalars.h"

namespace rn {

// How a tensor (N, ...) lies in memory. Its logical order is row-major; a channels-last one has
// `channels` > 1 and `pixels` places in between.
struct DropoutLayout {
  i64 count;     // elements
  i64 inner;     // elements of one sample
  i64 channels;  // 1 for a row-major tensor
  i64 pixels;    // inner / channels
};

struct DropoutDraw {
  u64 key;
  i64 row_offset;
  u32 threshold;  // drop when a word is below it
  float scale;    // 1 / (1 - p)
};

RN_HD DropoutDraw dropout_draw(const Scalars& s, u64 layer, u32 threshold, float scale) {
  const u64 key = derive(derive(purpose_key(s.seed, PURPOSE_DROPOUT), layer), s.micro);
  return {key, s.row_offset, threshold, scale};
}

// The factor of the element at place `i` in memory: 0 or `scale`.
RN_HD float dropout_factor(const DropoutDraw& d, const DropoutLayout& layout, i64 i) {
  const i64 row = i / layout.inner;
  i64 place = i - row * layout.inner;
  if (layout.channels > 1) {
    const i64 pixel = place / layout.channels;
    place = (place - pixel * layout.channels) * layout.pixels + pixel;
  }
  const u64 sample = static_cast<u64>(d.row_offset + row);
  const u64 block = static_cast<u64>(place) >> 2;
  const Block drawn = philox(static_cast<u32>(block), static_cast<u32>(block >> 32),
                             static_cast<u32>(sample), static_cast<u32>(sample >> 32),
                             static_cast<u32>(d.key), static_cast<u32>(d.key >> 32));
  return drawn.word[place & 3] < d.threshold ? 0.0f : d.scale;
}

}  // namespace rn

// Dropout masks and noise: a pure function of (seed, attempted micro-step, layer, place in the
// global batch).
//
// Nothing is stored for backward, which draws the same mask again. Launch geometry, memory layout,
// device and number of ranks do not enter. A block of Philox serves a quad: the four neighbouring
// places 4 q to 4 q + 3 of a sample, in its logical order, which is row-major.
#pragma once
#include "convert.h"
#include "normal.h"
#include "scalars.h"

namespace rn {

struct LayerDraw {
  u64 key;
  i64 row_offset;  // of the first sample in the global batch
};

RN_HD LayerDraw layer_draw(const Scalars& s, u64 layer) {
  return {derive(derive(purpose_key(s.seed, PURPOSE_DROPOUT), layer), s.micro), s.row_offset};
}

RN_HD Block quad_words(const LayerDraw& draw, u64 row, u64 quad) {
  const u64 sample = static_cast<u64>(draw.row_offset) + row;
  return philox(static_cast<u32>(quad), static_cast<u32>(quad >> 32), static_cast<u32>(sample),
                static_cast<u32>(sample >> 32), static_cast<u32>(draw.key),
                static_cast<u32>(draw.key >> 32));
}

// What becomes of the values of a quad: zero where a word is below the threshold, else scaled.
struct Drop {
  u32 threshold;
  float scale;  // 1 / (1 - p)

  RN_HD void operator()(const Block& words, float* values) const {
    for (int k = 0; k < 4; ++k)
      values[k] = words.word[k] < threshold ? 0.0f : values[k] * scale;
  }
};

// Four standard normals, whatever the values were.
struct Gauss {
  RN_HD void operator()(const Block& words, float* values) const {
    normal_pair(words, &values[0], &values[1]);
    normal_pair({{words.word[2], words.word[3], 0u, 0u}}, &values[2], &values[3]);
  }
};

// Division of numbers that nearly always have 32 bits, which is several times quicker on a GPU.
RN_HD i64 quotient(i64 a, i64 b) {
  if ((a | b) >> 32) return a / b;
  return static_cast<u32>(a) / static_cast<u32>(b);
}

// How a tensor (N, ...) lies in memory: row-major, or channels-last with `channels` > 1 and `pixels`
// places of each channel.
struct SampleLayout {
  i64 inner;     // elements of one sample
  i64 channels;  // 1 for a row-major tensor
  i64 pixels;    // inner / channels

  RN_HD i64 quads() const { return (inner + 3) / 4; }
};

// A quad and where its values lie in the memory of a sample. Units number the quads so that
// neighbours lie side by side in memory.
struct Quad {
  i64 quad;
  i64 at[4];
  i32 size;  // 4; less at the end of a sample
};

RN_HD Quad quad_of(const SampleLayout& layout, i64 unit) {
  Quad found{unit, {4 * unit, 4 * unit + 1, 4 * unit + 2, 4 * unit + 3}, 4};
  if (layout.channels > 1 && layout.pixels % 4 == 0) {
    const i64 row = quotient(unit, layout.channels), channel = unit - row * layout.channels;
    found.quad = channel * (layout.pixels / 4) + row;
    for (int k = 0; k < 4; ++k) found.at[k] = (4 * row + k) * layout.channels + channel;
    return found;
  }
  const i64 left = layout.inner - 4 * unit;
  if (left < 4) found.size = static_cast<i32>(left);
  if (layout.channels > 1) {
    for (int k = 0; k < 4; ++k) {
      const i64 channel = quotient(found.at[k], layout.pixels);
      found.at[k] = (found.at[k] - channel * layout.pixels) * layout.channels + channel;
    }
  }
  return found;
}

}  // namespace rn

// Pixel values: noise, and what one output element is, computed backwards through a program.
#pragma once
#include "view.h"

namespace rn {

// Noise counts in blocks of its own, above those of the parameters.
constexpr u32 NOISE_DRAWS = 1u << 20;

// Element `element` of an operation's noise for one sample: standard normal.
RN_HD float noise_at(const Operation& op, const SampleKey& who, u64 element) {
  const u32 draw = op.stream + NOISE_DRAWS + static_cast<u32>(element >> 2);
  Block block = keyed(who.key, draw, who.epoch, who.id);
  if (element & 2u) {
    block.word[0] = block.word[2];
    block.word[1] = block.word[3];
  }
  float first, second;
  normal_pair(block, &first, &second);
  return element & 1u ? second : first;
}

}  // namespace rn

// Colour transforms of one pixel, in float32 levels 0-255: torchvision's formulas for float tensors.
#pragma once
#include "sampling.h"

namespace rn {

constexpr float TOP_LEVEL = 255.0f;

RN_HD float in_levels(float x) {
  x = x > 0.0f ? x : 0.0f;  // a negative zero becomes zero
  return x < TOP_LEVEL ? x : TOP_LEVEL;
}

RN_HD float gray_of(float r, float g, float b) {
  return (0.2989f * r + 0.587f * g) + 0.114f * b;
}

// factor * x + (1 - factor) * other, kept in 0-255; `rest` is 1 - factor.
RN_HD float blended(float x, float other, float factor, float rest) {
  return in_levels(factor * x + rest * other);
}

// Channel n of (5: red, 3: green, 1: blue) a colour of hue h6 (in sixths), value v, chroma c.
RN_HD float hue_channel(float n, float h6, float v, float c) {
  float k = n + h6;
  k = k >= 6.0f ? k - 6.0f : k;
  float part = k < 4.0f - k ? k : 4.0f - k;
  part = part < 1.0f ? part : 1.0f;
  part = part > 0.0f ? part : 0.0f;
  return v - c * part;
}

// Turns the hue by `sixths` sixths of a circle, 0 <= sixths < 6; value and chroma stay.
RN_HD void turn_hue(float sixths, float* r, float* g, float* b) {
  const float largest_rg = *r > *g ? *r : *g;
  const float smallest_rg = *r < *g ? *r : *g;
  const float v = largest_rg > *b ? largest_rg : *b;
  const float least = smallest_rg < *b ? smallest_rg : *b;
  const float chroma = v - least;
  const float inverse = 1.0f / (chroma == 0.0f ? 1.0f : chroma);
  float h = (*r - *g) * inverse + 4.0f;
  h = v == *g ? (*b - *r) * inverse + 2.0f : h;
  h = v == *r ? (*g - *b) * inverse : h;
  h = h + sixths;
  h = h < 0.0f ? h + 6.0f : h;
  h = h >= 6.0f ? h - 6.0f : h;
  *r = hue_channel(5.0f, h, v, chroma);
  *g = hue_channel(3.0f, h, v, chroma);
  *b = hue_channel(1.0f, h, v, chroma);
}

// Whole levels that keep only the upper `bits` bits: x & mask after rounding half to even.
RN_HD float posterized(float x, u32 mask) {
  return static_cast<float>(static_cast<u32>(round_even(in_levels(x))) & mask);
}

RN_HD float solarized(float x, float threshold) { return x >= threshold ? TOP_LEVEL - x : x; }

// ColorJitter: the order in which its four parts act (0 brightness, 1 contrast, 2 saturation,
// 3 hue), and their factors.
struct JitterDraw {
  i32 order[4];
  float factor[4];
};

RN_HD JitterDraw draw_jitter(const Operation& op, const SampleKey& who) {
  Draws draws = draws_of(who, op.stream);
  JitterDraw drawn = {{0, 1, 2, 3}, {1.0f, 1.0f, 1.0f, 0.0f}};
  for (i32 k = 3; k > 0; --k) {
    const i32 other = draw_below(draws, k + 1);
    const i32 held = drawn.order[k];
    drawn.order[k] = drawn.order[other];
    drawn.order[other] = held;
  }
  for (i32 k = 0; k < 4; ++k)
    if (op.flags & (1u << k)) drawn.factor[k] = draw_between(draws, op.range[2 * k], op.range[2 * k + 1]);
  return drawn;
}

// GaussianBlur's deviation in pixels.
RN_HD float draw_sigma(const Operation& op, const SampleKey& who) {
  Draws draws = draws_of(who, op.stream);
  return draw_between(draws, op.range[0], op.range[1]);
}

// The operations TrivialAugment and RandAugment choose from.
enum AutoKind : i32 {
  AUTO_IDENTITY = 0,
  AUTO_SHEAR_X = 1,
  AUTO_SHEAR_Y = 2,
  AUTO_TRANSLATE_X = 3,
  AUTO_TRANSLATE_Y = 4,
  AUTO_ROTATE = 5,
  AUTO_BRIGHTNESS = 6,
  AUTO_COLOR = 7,
  AUTO_CONTRAST = 8,
  AUTO_SHARPNESS = 9,
  AUTO_POSTERIZE = 10,
  AUTO_SOLARIZE = 11,
  AUTO_AUTOCONTRAST = 12,
  AUTO_EQUALIZE = 13,
  AUTO_KINDS = 14,
};

struct AutoDraw {
  i32 kind;
  float magnitude;  // signed; shear as a slope, shift in pixels, bits, level or factor - 1
};

// Point `place` of `count` from 0 to `end`, rounded as torch.linspace rounds (the step once, the
// rest once): a translation is cut to whole pixels, so that 15.999999 and 16 differ.
RN_HD float linspace_at(float end, i32 place, i32 count) {
  const double step = static_cast<double>(end / static_cast<float>(count - 1));
  if (place < count / 2) return static_cast<float>(step * static_cast<double>(place));
  return static_cast<float>(static_cast<double>(end) - step * static_cast<double>(count - 1 - place));
}

// The magnitude of `kind` at `bin` of `bins`, before its sign.
RN_HD float auto_magnitude(i32 kind, i32 bin, i32 bins, bool wide, i32 height, i32 width) {
  const float most = 150.0f / 331.0f;  // translation as a fraction of the side
  switch (kind) {
    case AUTO_SHEAR_X:
    case AUTO_SHEAR_Y: return linspace_at(wide ? 0.99f : 0.3f, bin, bins);
    case AUTO_TRANSLATE_X:
      return linspace_at(wide ? 32.0f : most * static_cast<float>(width), bin, bins);
    case AUTO_TRANSLATE_Y:
      return linspace_at(wide ? 32.0f : most * static_cast<float>(height), bin, bins);
    case AUTO_ROTATE: return linspace_at(wide ? 135.0f : 30.0f, bin, bins);
    case AUTO_BRIGHTNESS:
    case AUTO_COLOR:
    case AUTO_CONTRAST:
    case AUTO_SHARPNESS: return linspace_at(wide ? 0.99f : 0.9f, bin, bins);
    case AUTO_POSTERIZE: return 8.0f - round_even(linspace_at(wide ? 6.0f : 4.0f, bin, bins));
    case AUTO_SOLARIZE: return TOP_LEVEL - linspace_at(TOP_LEVEL, bin, bins);
    default: return 0.0f;
  }
}

RN_HD bool is_signed(i32 kind) { return kind >= AUTO_SHEAR_X && kind <= AUTO_SHARPNESS; }

// Choice number `choice` of one sample; every choice has counter words of its own.
RN_HD AutoDraw draw_auto(const Operation& op, const SampleKey& who, i32 choice, i32 height, i32 width) {
  const bool wide = op.kind == OP_TRIVIAL;
  Draws draws = draws_of(who, op.stream + (static_cast<u32>(choice) << 8));
  const i32 kind = draw_below(draws, AUTO_KINDS);
  const i32 bin = wide ? draw_below(draws, op.size[0]) : op.size[2];
  float magnitude = auto_magnitude(kind, bin, op.size[0], wide, height, width);
  if (is_signed(kind) && draw_chance(draws, 0.5f)) magnitude = -magnitude;
  if (kind == AUTO_TRANSLATE_X || kind == AUTO_TRANSLATE_Y)
    magnitude = static_cast<float>(static_cast<i32>(magnitude));
  return {kind, magnitude};
}

}  // namespace rn

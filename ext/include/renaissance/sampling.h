// What the transforms draw: distributions of torchvision's transforms from keyed words.
//
// Only + - * / and square root, in float32: host and device draw the same bits. Rounding to whole
// pixels is half to even, as Python's `round`.
#pragma once
#include "normal.h"
#include "operation.h"

namespace rn {

// Nearest whole number, ties to even; |x| < 2^22.
RN_HD float round_even(float x) {
  const float big = x < 0.0f ? -12582912.0f : 12582912.0f;  // 1.5 * 2^23
  return (x + big) - big;
}

// Largest whole number not above x; |x| < 2^31.
RN_HD float floor_of(float x) {
  const float cut = static_cast<float>(static_cast<i32>(x));
  return x < cut ? cut - 1.0f : cut;
}

// e^x for |x| <= 87, within 2 ulp (polynomial of the Cephes library, S. Moshier, 1989).
RN_HD float exp_of(float x) {
  const float n = round_even(x * 1.44269504088896341f);
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float y = 1.9875691500e-4f;
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * (r * r) + r + 1.0f;
  return y * float_of(static_cast<u32>(static_cast<i32>(n) + 127) << 23);
}

// Sine and cosine of an angle in degrees, |angle| < 2^20; exact at multiples of 90.
RN_HD void sincos_degrees(float degrees, float* sine, float* cosine) {
  const float quarter = round_even(degrees / 90.0f);
  const float t = (degrees - quarter * 90.0f) * 0.017453292519943295f;
  float s, c;
  sincos_octant(t, &s, &c);
  switch (static_cast<i32>(quarter) & 3) {
    case 0: *sine = s; *cosine = c; break;
    case 1: *sine = c; *cosine = -s; break;
    case 2: *sine = -s; *cosine = -c; break;
    default: *sine = -c; *cosine = s; break;
  }
}

// [low, high), as torch's uniform_.
RN_HD float draw_between(Draws& draws, float low, float high) {
  return unit(next_word(draws)) * (high - low) + low;
}

// 0 ... n-1, exactly uniform (Lemire 2019); a rejected word is followed by the next of this stream.
RN_HD i32 draw_below(Draws& draws, i32 n) {
  const u32 range = static_cast<u32>(n);
  u64 product = static_cast<u64>(next_word(draws)) * range;
  if (static_cast<u32>(product) < range) {
    const u32 least = (0u - range) % range;
    while (static_cast<u32>(product) < least) product = static_cast<u64>(next_word(draws)) * range;
  }
  return static_cast<i32>(product >> 32);
}

RN_HD bool draw_chance(Draws& draws, float p) { return unit(next_word(draws)) < p; }

struct Box {
  i32 top, left, height, width;
};

// RandomCrop out of a picture at least as large.
RN_HD Box draw_crop(const Operation& op, const SampleKey& who, i32 height, i32 width) {
  Draws draws = draws_of(who, op.stream);
  const i32 top = draw_below(draws, height - op.size[0] + 1);
  const i32 left = draw_below(draws, width - op.size[1] + 1);
  return {top, left, op.size[0], op.size[1]};
}

// CenterCrop of a picture at least as large.
RN_HD Box center_crop(const Operation& op, i32 height, i32 width) {
  const float top = round_even(static_cast<float>(height - op.size[0]) * 0.5f);
  const float left = round_even(static_cast<float>(width - op.size[1]) * 0.5f);
  return {static_cast<i32>(top), static_cast<i32>(left), op.size[0], op.size[1]};
}

// RandomResizedCrop: ten tries of (area, log-uniform ratio), then the largest centred box.
RN_HD Box draw_resized_crop(const Operation& op, const SampleKey& who, i32 height, i32 width) {
  Draws draws = draws_of(who, op.stream);
  const float area = static_cast<float>(height) * static_cast<float>(width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const float target = area * draw_between(draws, op.range[0], op.range[1]);
    const float ratio = exp_of(draw_between(draws, op.range[2], op.range[3]));
    const i32 w = static_cast<i32>(round_even(root(target * ratio)));
    const i32 h = static_cast<i32>(round_even(root(target / ratio)));
    if (w <= 0 || w > width || h <= 0 || h > height) continue;
    const i32 top = draw_below(draws, height - h + 1);
    const i32 left = draw_below(draws, width - w + 1);
    return {top, left, h, w};
  }
  i32 h = height, w = width;
  const float have = static_cast<float>(width) / static_cast<float>(height);
  if (have < op.range[4])
    h = static_cast<i32>(round_even(static_cast<float>(w) / op.range[4]));
  else if (have > op.range[5])
    w = static_cast<i32>(round_even(static_cast<float>(h) * op.range[5]));
  return {(height - h) / 2, (width - w) / 2, h, w};
}

RN_HD bool draw_flip(const Operation& op, const SampleKey& who) {
  Draws draws = draws_of(who, op.stream);
  return draw_chance(draws, op.p);
}

// RandomErasing: a box strictly smaller than the picture, or none (height 0).
RN_HD Box draw_erase(const Operation& op, const SampleKey& who, i32 height, i32 width) {
  Draws draws = draws_of(who, op.stream);
  if (!draw_chance(draws, op.p)) return {0, 0, 0, 0};
  const float area = static_cast<float>(height) * static_cast<float>(width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const float target = area * draw_between(draws, op.range[0], op.range[1]);
    const float ratio = exp_of(draw_between(draws, op.range[2], op.range[3]));
    const i32 h = static_cast<i32>(round_even(root(target * ratio)));
    const i32 w = static_cast<i32>(round_even(root(target / ratio)));
    if (h >= height || w >= width) continue;
    const i32 top = draw_below(draws, height - h + 1);
    const i32 left = draw_below(draws, width - w + 1);
    return {top, left, h, w};
  }
  return {0, 0, 0, 0};
}

// Cutout (DeVries and Taylor 2017): a box around a uniform centre, cut at the borders.
RN_HD Box draw_cutout(const Operation& op, const SampleKey& who, i32 height, i32 width) {
  Draws draws = draws_of(who, op.stream);
  if (!draw_chance(draws, op.p)) return {0, 0, 0, 0};
  i32 top = draw_below(draws, height) - op.size[0] / 2;
  i32 left = draw_below(draws, width) - op.size[1] / 2;
  i32 bottom = top + op.size[0], right = left + op.size[1];
  top = top < 0 ? 0 : top;
  left = left < 0 ? 0 : left;
  bottom = bottom > height ? height : bottom;
  right = right > width ? width : right;
  return {top, left, bottom - top, right - left};
}

// Parameters of one affine operation: degrees, whole pixels, factor, degrees.
struct AffineDraw {
  float angle, shift_x, shift_y, scale, shear_x, shear_y;
};

RN_HD AffineDraw draw_affine(const Operation& op, const SampleKey& who, i32 height, i32 width) {
  Draws draws = draws_of(who, op.stream);
  AffineDraw drawn = {0.0f, 0.0f, 0.0f, 1.0f, 0.0f, 0.0f};
  if (op.flags & AFFINE_DRAWS_ANGLE)
    drawn.angle = draw_between(draws, op.range[RANGE_ANGLE], op.range[RANGE_ANGLE + 1]);
  if (op.flags & AFFINE_DRAWS_SHIFT) {
    const float most_x = op.range[RANGE_SHIFT] * static_cast<float>(width);
    const float most_y = op.range[RANGE_SHIFT + 1] * static_cast<float>(height);
    drawn.shift_x = round_even(draw_between(draws, -most_x, most_x));
    drawn.shift_y = round_even(draw_between(draws, -most_y, most_y));
  }
  if (op.flags & AFFINE_DRAWS_SCALE)
    drawn.scale = draw_between(draws, op.range[RANGE_SCALE], op.range[RANGE_SCALE + 1]);
  if (op.flags & AFFINE_DRAWS_SHEAR) {
    drawn.shear_x = draw_between(draws, op.range[RANGE_SHEAR], op.range[RANGE_SHEAR + 1]);
    drawn.shear_y = draw_between(draws, op.range[RANGE_SHEAR + 2], op.range[RANGE_SHEAR + 3]);
  }
  return drawn;
}

}  // namespace rn

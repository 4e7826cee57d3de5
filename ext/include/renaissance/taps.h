// Antialiased resizing along one axis: which pixels make an output pixel, and how much each.
//
// The rule of PIL and of torchvision's antialias=True: the filter is stretched by in/out when the
// picture shrinks, cut at the picture's (or the crop's) border, and normalised to sum 1.
#pragma once
#include "operation.h"

namespace rn {

RN_HD float filter_reach(u32 filter) { return filter == FILTER_BICUBIC ? 2.0f : 1.0f; }

// The filter at distance x from its centre: triangle, or Keys' cubic with a = -1/2.
RN_HD float filter_at(u32 filter, float x) {
  x = x < 0.0f ? -x : x;
  if (filter == FILTER_BICUBIC) {
    if (x < 1.0f) return (1.5f * x - 2.5f) * x * x + 1.0f;
    return x < 2.0f ? ((-0.5f * x + 2.5f) * x - 4.0f) * x + 2.0f : 0.0f;
  }
  return x < 1.0f ? 1.0f - x : 0.0f;
}

// An upper bound of the taps of any output pixel.
RN_HD i32 most_taps(u32 filter, i32 in, i32 out) {
  if (filter == FILTER_NEAREST) return 1;
  const float scale = in > out ? static_cast<float>(in) / static_cast<float>(out) : 1.0f;
  return static_cast<i32>(filter_reach(filter) * scale) * 2 + 3;
}

// Writes the weights of output pixel `place`; returns their number and the first input pixel.
RN_HD i32 taps_of(u32 filter, i32 in, i32 out, i32 place, i32* first, float* weights) {
  const double ratio = static_cast<double>(in) / static_cast<double>(out);
  if (filter == FILTER_NEAREST) {
    const i32 at = static_cast<i32>(static_cast<double>(place) * ratio);
    *first = at < in ? at : in - 1;
    weights[0] = 1.0f;
    return 1;
  }
  const double stretch = ratio > 1.0 ? ratio : 1.0;
  const double center = (static_cast<double>(place) + 0.5) * ratio;
  const double support = static_cast<double>(filter_reach(filter)) * stretch;
  const i32 lowest = static_cast<i32>(center - support + 0.5);
  const i32 highest = static_cast<i32>(center + support + 0.5);
  const i32 low = center - support + 0.5 < 0.0 ? 0 : lowest;
  const i32 high = highest < in ? highest : in;
  const float shrink = static_cast<float>(1.0 / stretch);
  float total = 0.0f;
  for (i32 k = low; k < high; ++k) {
    const float distance = static_cast<float>(static_cast<double>(k) + 0.5 - center);
    weights[k - low] = filter_at(filter, distance * shrink);
    total = total + weights[k - low];
  }
  const float inverse = 1.0f / total;
  for (i32 k = 0; k < high - low; ++k) weights[k] = weights[k] * inverse;
  *first = low;
  return high - low;
}

}  // namespace rn

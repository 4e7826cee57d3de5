#include "mix.h"

#include <algorithm>

#include "wide.h"

namespace rn {
namespace {

// a = weight * a + rest * b and the other way round, in float32, rounded once.
template <class T, class Load, class Store>
void blend_as(float weight, i64 count, void* first, void* second, const Load& load,
              const Store& store) {
  const float rest = 1.0f - weight;
  run_wide([=] {
    T* __restrict__ a = static_cast<T*>(first);
    T* __restrict__ b = static_cast<T*>(second);
    for (i64 i = 0; i < count; ++i) {
      const float x = load(a[i]), y = load(b[i]);
      a[i] = store(weight * x + rest * y);
      b[i] = store(weight * y + rest * x);
    }
  });
}

void blend(float weight, i32 dtype, i64 count, void* first, void* second) {
  if (dtype == FLOAT32) {
    const auto same = [](float x) { return x; };
    blend_as<float>(weight, count, first, second, same, same);
  } else if (dtype == BFLOAT16) {
    blend_as<u16>(
        weight, count, first, second, [](u16 x) { return from_bfloat16(x); },
        [](float x) { return to_bfloat16(x); });
  } else {
    blend_as<u16>(
        weight, count, first, second, [](u16 x) { return from_float16(x); },
        [](float x) { return to_float16(x); });
  }
}

}  // namespace

void mix_pair(const MixDraw& drawn, const OutputSpec& spec, int height, int width, void* first,
              void* second) {
  const i64 area = i64(height) * width;
  if (drawn.box.height == 0 || drawn.box.width == 0) {
    if (drawn.weight != 1.0f) blend(drawn.weight, spec.dtype, area * spec.channels, first, second);
    return;
  }
  const i64 bytes = spec.dtype == FLOAT32 ? 4 : 2;
  const bool pixels = spec.layout == LAYOUT_NHWC;
  const i64 step = pixels ? spec.channels : 1;
  const Box& box = drawn.box;
  for (int c = 0; c < (pixels ? 1 : spec.channels); ++c)
    for (int y = box.top; y < box.top + box.height; ++y) {
      const i64 at = (c * area + (i64(y) * width + box.left) * step) * bytes;
      char* a = static_cast<char*>(first) + at;
      std::swap_ranges(a, a + box.width * step * bytes, static_cast<char*>(second) + at);
    }
}

void mix_targets(float weight, i64 first_label, i64 second_label, i64 classes, float* rows) {
  const float rest = 1.0f - weight;
  float *first = rows, *second = rows + classes;
  std::fill(first, first + 2 * classes, 0.0f);
  first[first_label] += weight;
  first[second_label] += rest;
  second[second_label] += weight;
  second[first_label] += rest;
}

}  // namespace rn

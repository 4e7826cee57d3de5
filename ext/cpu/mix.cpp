#include "mix.h"

#include <algorithm>

#include "blocks.h"

namespace rn {
namespace {

// a = weight * a + rest * b and the other way round, in float32, rounded once.
void blend(float weight, i32 dtype, i64 count, void* first, void* second) {
  const float rest = 1.0f - weight;
  for (i64 i = 0; i < count; ++i) {
    const float a = load_float(first, dtype, i), b = load_float(second, dtype, i);
    put(first, i, dtype, weight * a + rest * b);
    put(second, i, dtype, weight * b + rest * a);
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

}  // namespace rn

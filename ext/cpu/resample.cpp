// Resampling a canvas: affine maps from bordered copies of the picture, and resizing.
#include <algorithm>

#include "pass.h"
#include "renaissance/taps.h"

namespace rn {

// Planes of what the index maps show, with one row and column of fill before and two after.
template <class T>
void Canvas::start_planes(Pass& pass, const T** planes) const {
  const int h = y_.size(), stride = pass.affine.stride;
  const std::size_t area = std::size_t(h + 3) * stride;
  T* inner[MAX_CHANNELS];
  for (int c = 0; c < channels_; ++c) {
    T* plane = scratch_.take<T>(area);
    std::fill(plane, plane + area, static_cast<T>(operations_[affine_operation_].value[c]));
    planes[c] = plane;
    inner[c] = plane + stride + 1;
  }
  show(0, h, pass, inner, stride);
}

void Canvas::start_affine(Pass& pass) const {
  start_plain(pass);
  const int h = y_.size(), w = x_.size(), stride = (w + 3 + 15) / 16 * 16;
  AffineBlock& block = pass.affine;
  block.map = map_;
  block.height = h;
  block.width = w;
  block.step_y = after_y_.direction();
  block.first_x = after_x_.first();
  block.step_x = after_x_.direction();
  block.count = after_x_.size();
  block.channels = channels_;
  block.stride = stride;
  block.nearest = affine_flags_ & AFFINE_NEAREST;
  if (!pass.as_bytes) {
    start_planes(pass, block.planes);
    return;
  }
  const u8* planes[MAX_CHANNELS];
  start_planes(pass, planes);
  for (int c = 0; c < channels_; ++c) {
    u16* pairs = scratch_.take<u16>(std::size_t(h + 3) * stride);
    row_kernels().pair_bytes(planes[c], planes[c] + stride, (h + 2) * stride, pairs);
    block.pairs[c] = pairs;
  }
}

namespace {

// See Taps::pairs.
const float* paired(const Taps& taps, int outputs, Scratch& scratch) {
  float* const pairs = scratch.take<float>(std::size_t(outputs) * taps.count * 4);
  float* at = pairs;
  for (int g = 0; g + 8 <= outputs; g += 8)
    for (int j = g; j < g + 4; ++j)
      for (int k = 0; k < taps.count; ++k, at += 8) {
        std::fill(at, at + 4, taps.weight[i64(j) * taps.most + k]);
        std::fill(at + 4, at + 8, taps.weight[i64(j + 4) * taps.most + k]);
      }
  return pairs;
}

}  // namespace

void Canvas::start_resize(Pass& pass) const {
  const int in = x_.size(), out = after_x_.size(), step = static_cast<int>(pixels_.pixel);
  const int most = most_taps(filter_, in, resized_width_) + 1;
  const int most_rows = most_taps(filter_, y_.size(), resized_height_);
  int* first = scratch_.take<int>(out);
  float* weight = scratch_.take<float>(std::size_t(out) * most);
  int count = 2;
  for (int i = 0; i < out; ++i) {
    float* own = weight + i64(i) * most;
    const int taps = taps_of(filter_, in, resized_width_, after_x_.at(i), first + i, own);
    std::fill(own + taps, own + most, 0.0f);
    count = std::max(count, (taps + 1) / 2 * 2);
  }
  pass.taps = {first, weight, count, most};
  if (step == 3 && simd_in_use()) pass.taps.pairs = paired(pass.taps, out, scratch_);
  pass.weights = scratch_.take<float>(most_rows);
  pass.sources = scratch_.take<const void*>(most_rows);
  // Taps of weight zero reach beyond the row on either side.
  const int beyond = most * step;
  float* line = scratch_.take<float>(std::size_t(in) * step + 2 * beyond);
  std::fill(line, line + beyond, 0.0f);
  std::fill(line + beyond + i64(in) * step, line + 2 * beyond + i64(in) * step, 0.0f);
  pass.line = line + beyond;
}

// Blends the input rows, then the pixels along the result.
void Canvas::resize_row(int row, const Pass& pass, float* const* planes) const {
  const RowKernels& kernels = row_kernels();
  const int width = x_.size(), direction = x_.direction(), step = static_cast<int>(pixels_.pixel);
  const int least = direction > 0 ? x_.first() : x_.first() - (width - 1);
  int first;
  const int taps = taps_of(filter_, y_.size(), resized_height_, after_y_.at(row), &first, pass.weights);
  const float* start = pass.line + (direction > 0 ? 0 : (width - 1) * step);
  const int lines = step == 1 ? channels_ : 1;  // planes apart, or pixels whole
  for (int c = 0; c < lines; ++c) {
    for (int k = 0; k < taps; ++k) {
      const i64 at = (y_.at(first + k) - pixels_.origin_y) * pixels_.row +
                     i64(least - pixels_.origin_x) * step + c * pixels_.channel;
      pass.sources[k] = pixels_.bytes ? static_cast<const void*>(pixels_.bytes + at)
                                      : static_cast<const void*>(pixels_.floats + at);
    }
    if (pixels_.bytes)
      kernels.blend_bytes(reinterpret_cast<const u8* const*>(pass.sources), pass.weights, taps,
                          width * step, pass.line);
    else
      kernels.blend_floats(reinterpret_cast<const float* const*>(pass.sources), pass.weights, taps,
                           width * step, pass.line);
    if (step == 1)
      kernels.reduce_plane(start, direction, pass.taps, after_x_.size(), planes[c]);
  }
  if (step == 3)
    kernels.reduce_rgb(start, step * direction, pass.taps, after_x_.size(), planes);
  else if (step > 1)
    for (int c = 0; c < channels_; ++c)
      kernels.reduce_plane(start + c, step * direction, pass.taps, after_x_.size(), planes[c]);
  if (filter_ == FILTER_BICUBIC)
    for (int c = 0; c < channels_; ++c)
      for (int i = 0; i < after_x_.size(); ++i) planes[c][i] = in_levels(planes[c][i]);
}

}  // namespace rn

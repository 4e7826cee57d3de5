// One pass over the rows of a canvas: index maps or resampling, normalisation, erasing, storing.
#include <algorithm>
#include <cstring>

#include "canvas.h"
#include "renaissance/pixels.h"
#include "renaissance/taps.h"

namespace rn {

struct Canvas::Pass {
  float scale[MAX_CHANNELS], shift[MAX_CHANNELS];
  // Index maps only: what stands left and right of the plain stretch, per column.
  int* codes = nullptr;  // of columns [0, begin) and [end, width), as Axis::at gives them
  bool uniform = true;   // each side is one constant fill
  // Affine map only.
  AffineRow row;
  const u16* pairs[MAX_CHANNELS];
  const float* planes[MAX_CHANNELS];
  bool as_bytes = false;
  // Resize only.
  Taps taps;              // of the output columns, in their order
  float* weights;         // room for those of one output row
  float* line;            // one input row, blended from several
  const void** sources;   // the rows it is blended from
  // Whether producing a row already normalises it.
  bool is_normalized = false;
};

void Canvas::start(Pass& pass) const {
  pass.is_normalized = normalize_ && !colors_ && sampling_ != Sampling::resize;
  for (int c = 0; c < channels_; ++c) {
    pass.scale[c] = pass.is_normalized ? normalize_->value[c] : 1.0f;
    pass.shift[c] = pass.is_normalized ? normalize_->value[MAX_CHANNELS + c] : 0.0f;
  }
  switch (sampling_) {
    case Sampling::none: start_plain(pass); break;
    case Sampling::affine: start_affine(pass); break;
    case Sampling::resize: start_resize(pass); break;
  }
}

void Canvas::start_plain(Pass& pass) const {
  const int left = x_.begin(), right = x_.size() - x_.end();
  if (left + right == 0) return;
  pass.codes = scratch_.take<int>(left + right);
  for (int i = 0; i < left; ++i) pass.codes[i] = x_.at(i);
  for (int i = 0; i < right; ++i) pass.codes[left + i] = x_.at(x_.end() + i);
  for (int i = 0; i < left + right; ++i)
    pass.uniform = pass.uniform && pass.codes[i] < 0 && pass.codes[i] == pass.codes[i < left ? 0 : left];
}

bool Canvas::fills_are_bytes() const {
  const auto is_byte = [this](const Operation& op) {
    for (int c = 0; c < channels_; ++c)
      if (op.value[c] < 0.0f || op.value[c] > 255.0f || op.value[c] != floor_of(op.value[c]))
        return false;
    return true;
  };
  bool all = is_byte(operations_[affine_operation_]);
  for (int k = 0; k < affine_operation_; ++k)
    if (operations_[k].kind == OP_PAD || operations_[k].kind == OP_PAD_TO) all = all && is_byte(operations_[k]);
  return all;
}

// The view with one row and column of fill before it and two after it.
template <class T>
void Canvas::fill_bordered(T* plane, int stride, int channel) const {
  const T outside = static_cast<T>(operations_[affine_operation_].value[channel]);
  const int h = y_.size(), w = x_.size();
  for (int row = -1; row < h + 2; ++row) {
    T* out = plane + i64(row + 1) * stride;
    if (row < 0 || row >= h) {
      std::fill(out, out + stride, outside);
      continue;
    }
    out[0] = outside;
    std::fill(out + 1 + w, out + stride, outside);
    out += 1;
    const int y = y_.at(row);
    const auto single = [&](int place) {
      const int x = x_.at(place), code = std::min(x, y);
      out[place] = static_cast<T>(code < 0 ? operations_[-1 - code].value[channel]
                                           : pixels_.load(y, x, channel));
    };
    const int begin = y < 0 ? w : x_.begin(), end = y < 0 ? w : x_.end();
    for (int i = 0; i < begin; ++i) single(i);
    for (int i = end; i < w; ++i) single(i);
    if (begin >= end) continue;
    const i64 at = (y - pixels_.origin_y) * pixels_.row + (x_.first() - pixels_.origin_x) * pixels_.pixel +
                   channel * pixels_.channel;
    const i64 step = pixels_.pixel * x_.direction();
    if (pixels_.bytes && sizeof(T) == 1 && step == 1)
      std::memcpy(out + begin, pixels_.bytes + at, end - begin);
    else if (pixels_.bytes)
      for (int i = begin; i < end; ++i) out[i] = static_cast<T>(pixels_.bytes[at + (i - begin) * step]);
    else
      for (int i = begin; i < end; ++i) out[i] = static_cast<T>(pixels_.floats[at + (i - begin) * step]);
  }
}

void Canvas::start_affine(Pass& pass) const {
  const int h = y_.size(), w = x_.size(), stride = (w + 3 + 15) / 16 * 16;
  pass.row.center = static_cast<float>(w - 1) * 0.5f;
  pass.row.first = after_x_.first();
  pass.row.step = after_x_.direction();
  pass.row.count = after_x_.size();
  pass.row.height = static_cast<float>(h);
  pass.row.width = static_cast<float>(w);
  pass.row.stride = stride;
  pass.row.nearest = affine_flags_ & AFFINE_NEAREST;
  pass.as_bytes = pixels_.bytes && fills_are_bytes();
  const std::size_t area = std::size_t(h + 3) * stride;
  u8* plane = pass.as_bytes ? scratch_.take<u8>(area) : nullptr;
  for (int c = 0; c < channels_; ++c) {
    if (!pass.as_bytes) {
      float* floats = scratch_.take<float>(area);
      fill_bordered(floats, stride, c);
      pass.planes[c] = floats;
      continue;
    }
    fill_bordered(plane, stride, c);
    u16* pairs = scratch_.take<u16>(area);
    row_kernels().pair_bytes(plane, plane + stride, (h + 2) * stride, pairs);
    pass.pairs[c] = pairs;
  }
}

void Canvas::fill(int from, int to, int code, const Pass& pass, float* const* planes) const {
  for (int c = 0; c < channels_; ++c) {
    const float value = operations_[-1 - code].value[c] * pass.scale[c] + pass.shift[c];
    std::fill(planes[c] + from, planes[c] + to, value);
  }
}

// Columns outside the plain stretch, one by one; where both axes fill, the later operation does.
void Canvas::border(int from, int to, int source_row, const Pass& pass, float* const* planes) const {
  if (from >= to) return;
  const int* codes = pass.codes - (from < x_.begin() ? 0 : x_.end() - x_.begin());
  if (pass.uniform) {
    fill(from, to, std::min(codes[from], source_row), pass, planes);
    return;
  }
  for (int i = from; i < to; ++i) {
    const int code = std::min(codes[i], source_row);
    if (code < 0) {
      fill(i, i + 1, code, pass, planes);
      continue;
    }
    for (int c = 0; c < channels_; ++c)
      planes[c][i] = pixels_.load(source_row, codes[i], c) * pass.scale[c] + pass.shift[c];
  }
}

void Canvas::plain_row(int row, const Pass& pass, float* const* planes) const {
  const int begin = x_.begin(), end = x_.end(), y = y_.at(row);
  border(0, begin, y, pass, planes);
  border(end, x_.size(), y, pass, planes);
  if (begin >= end) return;
  if (y < 0) {
    fill(begin, end, y, pass, planes);
    return;
  }
  const RowKernels& kernels = row_kernels();
  const int count = end - begin;
  const i64 at = (y - pixels_.origin_y) * pixels_.row + (x_.first() - pixels_.origin_x) * pixels_.pixel;
  float* inner[MAX_CHANNELS];
  for (int c = 0; c < channels_; ++c) inner[c] = planes[c] + begin;
  if (pixels_.bytes && channels_ == 3 && pixels_.pixel == 3 && pixels_.channel == 1) {
    kernels.rgb(pixels_.bytes + at, x_.direction(), count, pass.scale, pass.shift, inner);
    return;
  }
  for (int c = 0; c < channels_; ++c) {
    if (pixels_.bytes)
      kernels.bytes(pixels_.bytes + at + c * pixels_.channel, pixels_.pixel * x_.direction(), count,
                    pass.scale[c], pass.shift[c], inner[c]);
    else
      kernels.floats(pixels_.floats + at + c * pixels_.channel, x_.direction(), count, pass.scale[c],
                     pass.shift[c], inner[c]);
  }
}

void Canvas::erase_row(int row, float* const* planes) const {
  const int w = width();
  for (int k = 0; k < erasures_; ++k) {
    const Erasure& erasure = erased_[k];
    const Box& box = erasure.box;
    const Operation& op = *erasure.operation;
    if (row < box.top || row >= box.top + box.height) continue;
    const int from = std::max(box.left, 0), to = std::min(box.left + box.width, w);
    for (int c = 0; c < channels_ && from < to; ++c) {
      if (op.kind == OP_ERASE && op.flags == ERASE_NORMAL) {
        const u64 element = (u64(c) * box.height + (row - box.top)) * box.width + (from - box.left);
        for (int i = from; i < to; ++i) planes[c][i] = noise_at(op, who_, element + (i - from));
        continue;
      }
      const float value = erasure.in_levels && normalize_
                              ? op.value[c] * normalize_->value[c] + normalize_->value[MAX_CHANNELS + c]
                              : op.value[c];
      std::fill(planes[c] + from, planes[c] + to, value);
    }
  }
}

void Canvas::start_resize(Pass& pass) const {
  const int in = x_.size(), out = after_x_.size(), most = most_taps(filter_, in, resized_width_);
  const int most_rows = most_taps(filter_, y_.size(), resized_height_);
  int* first = scratch_.take<int>(out);
  int* count = scratch_.take<int>(out);
  float* weight = scratch_.take<float>(std::size_t(out) * most);
  for (int i = 0; i < out; ++i)
    count[i] = taps_of(filter_, in, resized_width_, after_x_.at(i), first + i, weight + i64(i) * most);
  pass.taps = {first, count, weight, most};
  pass.weights = scratch_.take<float>(most_rows);
  pass.sources = scratch_.take<const void*>(most_rows);
  pass.line = scratch_.take<float>(std::size_t(in) * pixels_.pixel);
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

void Canvas::affine_row_at(int row, Pass& pass, float* const* planes) const {
  const RowKernels& kernels = row_kernels();
  pass.row.map = row_map(map_, after_y_.at(row), y_.size(), x_.size());
  if (pass.as_bytes)
    kernels.affine_pairs(pass.row, pass.pairs, channels_, pass.scale, pass.shift, planes);
  else
    kernels.affine_floats(pass.row, pass.planes, channels_, pass.scale, pass.shift, planes);
}

void Canvas::render(const Sink& sink, double* gray_total) {
  Pass pass;
  start(pass);
  const int h = height(), w = width();
  float* planes[MAX_CHANNELS];
  for (int row = 0; row < h; ++row) {
    sink.begin(row, planes);
    switch (sampling_) {
      case Sampling::none: plain_row(row, pass, planes); break;
      case Sampling::affine: affine_row_at(row, pass, planes); break;
      case Sampling::resize: resize_row(row, pass, planes); break;
    }
    for (int k = 0; k < colors_; ++k) color_kernels().apply(color_[k], planes, channels_, w);
    if (gray_total) *gray_total += color_kernels().gray_sum(planes, channels_, w);
    if (normalize_ && !pass.is_normalized)
      for (int c = 0; c < channels_; ++c)
        row_kernels().scale(planes[c], w, normalize_->value[c], normalize_->value[MAX_CHANNELS + c]);
    erase_row(row, planes);
    sink.end(row, planes);
  }
}

}  // namespace rn

// One pass over the rows of a canvas: index maps or resampling, normalisation, erasing, storing.
#include <algorithm>
#include <cstring>

#include "canvas.h"
#include "renaissance/pixels.h"

namespace rn {

struct Canvas::Pass {
  float scale[MAX_CHANNELS], shift[MAX_CHANNELS];
  // Index maps only: what stands left and right of the plain stretch, per column.
  int* codes = nullptr;  // of columns [0, begin) and [end, width), as Axis::at gives them
  bool uniform = true;   // each side is one constant fill
  // Resampling only.
  AffineRow row;
  const u16* pairs[MAX_CHANNELS];
  const float* planes[MAX_CHANNELS];
  bool as_bytes = false;
};

void Canvas::start(Pass& pass) const {
  for (int c = 0; c < channels_; ++c) {
    pass.scale[c] = normalize_ ? normalize_->value[c] : 1.0f;
    pass.shift[c] = normalize_ ? normalize_->value[MAX_CHANNELS + c] : 0.0f;
  }
  if (resampled_)
    start_resampling(pass);
  else
    start_plain(pass);
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

void Canvas::start_resampling(Pass& pass) const {
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

void Canvas::erase_row(int row, const Pass& pass, float* const* planes) const {
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
      const float value =
          erasure.in_levels ? op.value[c] * pass.scale[c] + pass.shift[c] : op.value[c];
      std::fill(planes[c] + from, planes[c] + to, value);
    }
  }
}

void Canvas::render(const Sink& sink) {
  Pass pass;
  start(pass);
  const RowKernels& kernels = row_kernels();
  const int h = height();
  float* planes[MAX_CHANNELS];
  for (int row = 0; row < h; ++row) {
    sink.begin(row, planes);
    if (resampled_) {
      pass.row.map = row_map(map_, after_y_.at(row), y_.size(), x_.size());
      if (pass.as_bytes)
        kernels.affine_pairs(pass.row, pass.pairs, channels_, pass.scale, pass.shift, planes);
      else
        kernels.affine_floats(pass.row, pass.planes, channels_, pass.scale, pass.shift, planes);
    } else {
      plain_row(row, pass, planes);
    }
    erase_row(row, pass, planes);
    sink.end(row, planes);
  }
}

}  // namespace rn

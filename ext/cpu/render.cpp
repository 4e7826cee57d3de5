// One pass over the rows of a canvas: index maps or resampling, colour, normalisation, erasing,
// storing. Without colour and interleaving it writes whole blocks in the wanted type at once.
#include <algorithm>

#include "pass.h"
#include "renaissance/pixels.h"

namespace rn {
namespace {

void fill_values(const BlockOut& out, int channel, int from, int to, float value) {
  if (out.dtype == FLOAT32) {
    float* plane = static_cast<float*>(out.planes[channel]);
    std::fill(plane + from, plane + to, value);
  } else {
    u16* plane = static_cast<u16*>(out.planes[channel]);
    std::fill(plane + from, plane + to,
              out.dtype == FLOAT16 ? to_float16(value) : to_bfloat16(value));
  }
}

}  // namespace

void Canvas::start(Pass& pass) const {
  pass.is_normalized = normalize_ && !colors_ && sampling_ != Sampling::resize;
  for (int c = 0; c < channels_; ++c) {
    pass.scaling.scale[c] = pass.is_normalized ? normalize_->value[c] : 1.0f;
    pass.scaling.shift[c] = pass.is_normalized ? normalize_->value[MAX_CHANNELS + c] : 0.0f;
  }
  switch (sampling_) {
    case Sampling::none: start_plain(pass); break;
    case Sampling::affine: start_affine(pass); break;
    case Sampling::resize: start_resize(pass); break;
  }
}

void Canvas::produce(int row, int rows, Pass& pass, const BlockOut& out) const {
  if (sampling_ == Sampling::none) {
    if (pass.as_bytes)
      plain<u8>(row, rows, pass, out);
    else
      plain<float>(row, rows, pass, out);
    return;
  }
  pass.affine.first_y = after_y_.at(row);
  pass.affine.rows = rows;
  if (pass.as_bytes)
    block_kernels().affine_pairs(pass.affine, pass.scaling, out);
  else
    block_kernels().affine_floats(pass.affine, pass.scaling, out);
}

// What erasures overwrite of rows [row, row + rows).
void Canvas::erase(int row, int rows, const BlockOut& out) const {
  const int width = this->width();
  for (int k = 0; k < erasures_; ++k) {
    const Erasure& erasure = erased_[k];
    const Box& box = erasure.box;
    const Operation& op = *erasure.operation;
    const bool is_noise = op.kind == OP_ERASE && op.flags == ERASE_NORMAL;
    const int from = std::max(box.left, 0), to = std::min(box.left + box.width, width);
    const int first = std::max(box.top, row), last = std::min(box.top + box.height, row + rows);
    if (from >= to) continue;
    for (int c = 0; c < channels_; ++c) {
      const float value =
          erasure.in_levels && normalize_
              ? op.value[c] * normalize_->value[c] + normalize_->value[MAX_CHANNELS + c]
              : op.value[c];
      for (int r = first; r < last; ++r) {
        const BlockOut line = out.at(r - row);
        const u64 element = (u64(c) * box.height + (r - box.top)) * box.width + (from - box.left);
        if (!is_noise)
          fill_values(line, c, from, to, value);
        else
          for (int i = from; i < to; ++i)
            put(line.planes[c], i, line.dtype, noise_at(op, who_, element + (i - from)));
      }
    }
  }
}

void Canvas::render(const Sink& sink, double* gray_total) {
  Pass pass;
  start(pass);
  const int h = height(), w = width();
  if (sink.is_direct() && sampling_ != Sampling::resize && !colors_ && !gray_total) {
    const BlockOut out = sink.block();
    produce(0, h, pass, out);
    erase(0, h, out);
    return;
  }
  BlockOut line;
  line.row = 0;
  line.dtype = FLOAT32;
  float* planes[MAX_CHANNELS];
  for (int row = 0; row < h; ++row) {
    sink.begin(row, planes);
    std::copy(planes, planes + channels_, line.planes);
    if (sampling_ == Sampling::resize)
      resize_row(row, pass, planes);
    else
      produce(row, 1, pass, line);
    for (int k = 0; k < colors_; ++k) color_kernels().apply(color_[k], planes, channels_, w);
    if (gray_total) *gray_total += color_kernels().gray_sum(planes, channels_, w);
    if (normalize_ && !pass.is_normalized)
      for (int c = 0; c < channels_; ++c)
        row_kernels().scale(planes[c], w, normalize_->value[c], normalize_->value[MAX_CHANNELS + c]);
    erase(row, 1, line);
    sink.end(row, planes);
  }
}

}  // namespace rn

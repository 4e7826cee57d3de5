// One pass over the rows of a canvas: index maps or resampling, colour, normalisation, erasing,
// storing. Without colour and interleaving it writes whole blocks in the wanted type at once.
#include <algorithm>

#include "bypass.h"
#include "pass.h"
#include "renaissance/pixels.h"

namespace rn {
namespace {

// What an erasure writes into one row of one plane.
struct Eraser {
  i32 dtype;
  float value;

  void fill(char* row, int from, int to) const {
    if (dtype == FLOAT32) {
      std::fill(reinterpret_cast<float*>(row) + from, reinterpret_cast<float*>(row) + to, value);
    } else {
      const u16 half = dtype == FLOAT16 ? to_float16(value) : to_bfloat16(value);
      std::fill(reinterpret_cast<u16*>(row) + from, reinterpret_cast<u16*>(row) + to, half);
    }
  }
};

// Noise from `element` on, whole blocks of four at a time.
void add_noise(const Operation& op, const SampleKey& who, u64 element, int from, int to, i32 dtype,
               void* row) {
  for (int i = from; i < to;) {
    float four[4];
    noise_block(op, who, element, four);
    for (int k = static_cast<int>(element & 3u); k < 4 && i < to; ++k, ++i, ++element)
      put(row, i, dtype, four[k]);
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

// What an erasure writes, as the result holds it.
float Canvas::value_of(const Erasure& erasure, int channel) const {
  const float value = erasure.operation->value[channel];
  return erasure.in_levels && normalize_
             ? value * normalize_->value[channel] + normalize_->value[MAX_CHANNELS + channel]
             : value;
}

// What erasures overwrite of rows [row, row + rows).
void Canvas::erase(int row, int rows, const BlockOut& out) const {
  const int width = this->width();
  const i64 bytes = out.dtype == FLOAT32 ? 4 : 2;
  for (int k = 0; k < erasures_; ++k) {
    const Erasure& erasure = erased_[k];
    const Box& box = erasure.box;
    const Operation& op = *erasure.operation;
    const int from = std::max(box.left, 0), to = std::min(box.left + box.width, width);
    const int first = std::max(box.top, row), last = std::min(box.top + box.height, row + rows);
    if (from >= to) continue;
    for (int c = 0; c < channels_; ++c) {
      const Eraser eraser = {out.dtype, value_of(erasure, c)};
      char* line = static_cast<char*>(out.planes[c]) + (first - row) * out.row * bytes;
      for (int r = first; r < last; ++r, line += out.row * bytes) {
        const u64 element = (u64(c) * box.height + (r - box.top)) * box.width + (from - box.left);
        if (is_noise(op))
          add_noise(op, who_, element, from, to, out.dtype, line);
        else
          eraser.fill(line, from, to);
      }
    }
  }
}

// Normalisation becomes the last step of colour, where nothing has to be known in between.
void Canvas::join_colors(Pass& pass, bool counts_gray) {
  pass.steps = colors_;
  if (!colors_ || !normalize_ || counts_gray || colors_ == MAX_COLORS) return;
  ColorStep& last = color_[pass.steps++];
  last.kind = COLOR_SCALE;
  for (int c = 0; c < channels_; ++c) {
    last.gain[c] = normalize_->value[c];
    last.low[c] = normalize_->value[MAX_CHANNELS + c];
  }
  pass.is_normalized = true;
}

// A row of floats through everything that works row by row.
void Canvas::render_row(int row, Pass& pass, double* gray_total, const BlockOut& line) const {
  const int w = width();
  float* planes[MAX_CHANNELS];
  const float* from[MAX_CHANNELS];
  const bool in_place = !has_plain_planes() || !pass.steps;
  for (int c = 0; c < channels_; ++c) {
    planes[c] = static_cast<float*>(line.planes[c]);
    from[c] = in_place ? planes[c] : planes_ + row * pixels_.row + c * pixels_.channel;
  }
  if (sampling_ == Sampling::resize)
    resize_row(row, pass, planes);
  else if (in_place)
    produce(row, 1, pass, line);
  if (pass.steps)
    color_kernels().apply(color_, pass.steps, from, planes, channels_, w);
  if (gray_total) *gray_total += color_kernels().gray_sum(planes, channels_, w);
  if (normalize_ && !pass.is_normalized)
    for (int c = 0; c < channels_; ++c)
      row_kernels().scale(planes[c], w, normalize_->value[c], normalize_->value[MAX_CHANNELS + c]);
}

// The rows that erasures reach, from the first to the last.
Span Canvas::erased_rows() const {
  int first = height(), last = 0;
  for (int k = 0; k < erasures_; ++k) {
    first = std::min(first, std::max(erased_[k].box.top, 0));
    last = std::max(last, std::min(erased_[k].box.top + erased_[k].box.height, height()));
  }
  return first < last ? Span{first, last - first} : Span{0, 0};
}

// Whether every value can be written once, in order: index maps into planes of whole groups.
bool Canvas::can_stream(const OutputSpec& spec) const {
  const i64 bytes = i64(width()) * (spec.dtype == FLOAT32 ? 4 : 2);
  return sampling_ == Sampling::none && !colors_ && spec.channels == channels_ &&
         (spec.layout == LAYOUT_NCHW || spec.channels == 1) && bytes % STREAM_BYTES == 0;
}

// The only erasure, of one value, as columns that the conversion leaves out.
void Canvas::start_hole(Pass& pass, const Span& rows) const {
  const int w = width();
  const Erasure& erasure = erased_[0];
  u32* columns = scratch_.take<u32>(w);
  for (int i = 0; i < w; ++i)
    columns[i] = i >= erasure.box.left && i - erasure.box.left < erasure.box.width ? ~0u : 0u;
  pass.hole = {rows.first, rows.first + rows.count, columns, {}};
  for (int c = 0; c < channels_; ++c) pass.hole.value[c] = value_of(erasure, c);
}

// Everything is written once: one rectangle is erased by the conversion itself; with more of them,
// or noise, the rows they reach are made in the caches and copied.
void Canvas::stream(const Sink& sink) {
  Pass pass;
  start(pass);
  BlockOut out = sink.block();
  out.streams = true;
  const Span erased = erased_rows();
  if (erased.count > 0 && erasures_ == 1 && !noise_ && pass.as_bytes) start_hole(pass, erased);
  if (erased.count == 0 || pass.hole.columns) return produce(0, height(), pass, out);
  const int after = erased.first + erased.count;
  if (erased.first > 0) produce(0, erased.first, pass, out);
  BlockOut made = out;
  made.streams = false;
  const i64 bytes = erased.count * out.row * (out.dtype == FLOAT32 ? 4 : 2);
  for (int c = 0; c < channels_; ++c) made.planes[c] = scratch_.take<u8>(bytes);
  produce(erased.first, erased.count, pass, made);
  erase(erased.first, erased.count, made);
  const BlockOut to = out.at(erased.first);
  for (int c = 0; c < channels_; ++c)
    bypass_copy(static_cast<u8*>(to.planes[c]), static_cast<const u8*>(made.planes[c]), bytes);
  if (after < height()) produce(after, height() - after, pass, out.at(after));
}

void Canvas::render(const Sink& sink, double* gray_total) {
  if (ahead_) ahead_->ask_all();
  Pass pass;
  start(pass);
  join_colors(pass, gray_total != nullptr);
  const int h = height();
  const bool by_rows = sampling_ == Sampling::resize || colors_ || gray_total;
  if (sink.is_direct() && !by_rows) {
    const BlockOut out = sink.block();
    produce(0, h, pass, out);
    erase(0, h, out);
    return;
  }
  for (int row = 0; row < h; row += sink.band()) {
    const int rows = std::min(sink.band(), h - row);
    const BlockOut out = sink.begin(row);
    if (by_rows)
      for (int r = 0; r < rows; ++r) render_row(row + r, pass, gray_total, out.at(r));
    else
      produce(row, rows, pass, out);
    erase(row, rows, out);
    sink.end(row, rows, out);
  }
}

}  // namespace rn

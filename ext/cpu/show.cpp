// What the index maps show of a picture: pad, crop and flip as copies of whole stretches.
#include <algorithm>
#include <type_traits>

#include "pass.h"

namespace rn {
namespace {

constexpr int BAND_BYTES = 16384;  // of planes on their way through the first-level cache

void convert(const u8* from, i64 count, float scale, float shift, const RunOut& to) {
  block_kernels().bytes(from, count, scale, shift, to);
}

void convert(const float* from, i64 count, float scale, float shift, const RunOut& to) {
  block_kernels().floats(from, count, scale, shift, to);
}

const u8* base_of(const Pixels& pixels, const u8*) { return pixels.bytes; }
const float* base_of(const Pixels& pixels, const float*) { return pixels.floats; }

}  // namespace

void Canvas::start_plain(Pass& pass) const {
  pass.as_bytes = pixels_.bytes && has_whole_fills_;
  const bool fills_x = !x_.is_plain(), fills_y = !y_.is_plain();
  if (fills_x && fills_y && x_.fill() != y_.fill())
    pass.fill = Axis::MIXED;
  else if (fills_x || fills_y)
    pass.fill = fills_x ? x_.fill() : y_.fill();
  const int left = x_.begin(), right = x_.size() - x_.end(), borders = left + right;
  if (pass.fill != Axis::MIXED || borders == 0) return;
  pass.codes = scratch_.take<int>(borders);
  for (int i = 0; i < left; ++i) pass.codes[i] = x_.at(i);
  for (int i = 0; i < right; ++i) pass.codes[left + i] = x_.at(x_.end() + i);
}

// The plain stretch of columns in `rows` rows, the first of which shows `source_row`.
template <>
void Canvas::show_inner(int source_row, int rows, u8* const* planes, i64 stride) const {
  const i64 at = (source_row - pixels_.origin_y) * pixels_.row +
                 (x_.first() - pixels_.origin_x) * pixels_.pixel;
  u8* inner[MAX_CHANNELS];
  for (int c = 0; c < channels_; ++c) inner[c] = planes[c] + x_.begin();
  block_kernels().split({pixels_.bytes + at, pixels_.row * y_.direction(),
                         pixels_.pixel * x_.direction(), pixels_.channel, rows,
                         x_.end() - x_.begin(), channels_},
                        inner, stride);
}

template <>
void Canvas::show_inner(int source_row, int rows, float* const* planes, i64 stride) const {
  const int count = x_.end() - x_.begin();
  for (int c = 0; c < channels_; ++c)
    for (int r = 0; r < rows; ++r) {
      float* out = planes[c] + r * stride + x_.begin();
      const int y = source_row + r * y_.direction();
      for (int i = 0; i < count; ++i)
        out[i] = pixels_.load(y, x_.first() + i * x_.direction(), c);
    }
}

// Columns outside the plain stretch, one by one; where both axes fill, the later operation does.
template <class T>
void Canvas::show_border(int source_row, const Pass& pass, T* const* row) const {
  const int begin = x_.begin(), gap = x_.end() - begin;
  const int borders = x_.size() - gap;
  for (int k = 0; k < borders; ++k) {
    const int code = std::min(pass.codes[k], source_row), column = k < begin ? k : k + gap;
    for (int c = 0; c < channels_; ++c)
      row[c][column] = static_cast<T>(code < 0 ? operations_[-1 - code].value[c]
                                               : pixels_.load(source_row, pass.codes[k], c));
  }
}

// Rows of which all that is outside the plain stretches is one fill: that first, then the rest.
template <class T>
void Canvas::show_filled(int row, int rows, const Pass& pass, T* const* planes, i64 stride) const {
  const int width = x_.size(), runs = stride == width ? 1 : rows;
  for (int c = 0; c < channels_ && pass.fill != Axis::NO_FILL; ++c) {
    const T value = static_cast<T>(operations_[-1 - pass.fill].value[c]);
    for (int r = 0; r < runs; ++r)
      std::fill_n(planes[c] + r * stride, i64(runs == 1 ? rows : 1) * width, value);
  }
  const int first = std::max(row, y_.begin()), last = std::min(row + rows, y_.end());
  if (first >= last || x_.begin() >= x_.end()) return;
  T* start[MAX_CHANNELS];
  for (int c = 0; c < channels_; ++c) start[c] = planes[c] + (first - row) * stride;
  show_inner(y_.at(first), last - first, start, stride);
}

// Rows of the plain stretch.
template <class T>
void Canvas::show_plain(int row, int rows, const Pass& pass, T* const* planes, i64 stride) const {
  if (x_.begin() < x_.end()) show_inner(y_.at(row), rows, planes, stride);
  for (int r = 0; r < rows && pass.codes; ++r) {
    T* line[MAX_CHANNELS];
    for (int c = 0; c < channels_; ++c) line[c] = planes[c] + r * stride;
    show_border(y_.at(row + r), pass, line);
  }
}

// A row outside the plain stretch: a fill, or another row again (edge, reflect, symmetric).
template <class T>
void Canvas::show_line(int row, const Pass& pass, T* const* line) const {
  const int source_row = y_.at(row), begin = x_.begin(), end = x_.end();
  if (source_row >= 0 && begin < end) show_inner(source_row, 1, line, 0);
  for (int c = 0; c < channels_ && source_row < 0; ++c)
    std::fill(line[c], line[c] + x_.size(), static_cast<T>(operations_[-1 - source_row].value[c]));
  if (pass.codes) show_border(source_row, pass, line);
}

template <class T>
void Canvas::show(int row, int rows, const Pass& pass, T* const* planes, i64 stride) const {
  if (pass.fill != Axis::MIXED) return show_filled(row, rows, pass, planes, stride);
  const int to = row + rows;
  for (int r = row; r < to;) {
    T* start[MAX_CHANNELS];
    for (int c = 0; c < channels_; ++c) start[c] = planes[c] + (r - row) * stride;
    if (r < y_.begin() || r >= y_.end()) {
      show_line(r, pass, start);
      r += 1;
    } else {
      const int last = std::min(y_.end(), to);
      show_plain(r, last - r, pass, start, stride);
      r = last;
    }
  }
}

template void Canvas::show(int, int, const Pass&, u8* const*, i64) const;
template void Canvas::show(int, int, const Pass&, float* const*, i64) const;

// Rows whose pixels stand in order, as they are in memory.
template <class T>
bool Canvas::is_straight(const T*) const {
  return base_of(pixels_, static_cast<const T*>(nullptr)) && pixels_.pixel == 1 && x_.is_plain() &&
         y_.is_plain() && x_.direction() == 1;
}

// Rows of one channel that stand one after the other; the hole's are made with what is erased.
template <class T>
void Canvas::convert_rows(const T* from, int row, int rows, int channel, const Pass& pass,
                          const BlockOut& out) const {
  const i64 width = x_.size();
  const float scale = pass.scaling.scale[channel], shift = pass.scaling.shift[channel];
  const auto to = [&](int k) { return RunOut{out.at(k).planes[channel], out.dtype, out.streams}; };
  const Hole& hole = pass.hole;
  const int first = std::min(std::max(hole.first - row, 0), rows);
  const int last = std::min(std::max(hole.last - row, first), rows);
  if constexpr (std::is_same_v<T, u8>) {
    if (first < last) {
      convert(from, first * width, scale, shift, to(0));
      block_kernels().masked(from + first * width, {hole.columns, x_.size(), hole.value[channel]},
                             last - first, scale, shift, to(first));
      convert(from + last * width, (rows - last) * width, scale, shift, to(last));
      return;
    }
  }
  convert(from, rows * width, scale, shift, to(0));
}

template <class T>
void Canvas::plain(int row, int rows, Pass& pass, const BlockOut& out) const {
  const int width = x_.size();
  const T* base = base_of(pixels_, static_cast<const T*>(nullptr));
  const bool straight = is_straight(base);
  const int wanted = BAND_BYTES / (width * channels_ * static_cast<int>(sizeof(T)));
  const int most = std::min(std::max(wanted, 1), y_.size());
  const i64 asked = ahead_ ? ahead_->left() / (i64(channels_) * y_.size()) + 1 : 0;  // a row
  if (!straight && !pass.band) pass.band = scratch_.take<T>(i64(most) * width * channels_);
  for (int r = row; r < row + rows;) {
    const int count = straight && pixels_.row * y_.direction() != width
                          ? 1
                          : (straight ? row + rows - r : std::min(most, row + rows - r));
    const BlockOut to = out.at(r - row);
    const T* planes[MAX_CHANNELS];
    T* band[MAX_CHANNELS];
    for (int c = 0; c < channels_; ++c) {
      band[c] = static_cast<T*>(pass.band) + i64(c) * most * width;
      planes[c] = straight ? base + (y_.at(r) - pixels_.origin_y) * pixels_.row +
                                 (x_.first() - pixels_.origin_x) + c * pixels_.channel
                           : band[c];
    }
    if (!straight) show(r, count, pass, band, width);
    const bool is_run = out.row == width;
    const int lines = is_run ? 1 : count;
    for (int c = 0; c < channels_; ++c) {
      if (ahead_) ahead_->ask(asked * count);
      for (int k = 0; k < lines; ++k)
        convert_rows(planes[c] + i64(k) * width, r + k, is_run ? count : 1, c, pass, to.at(k));
    }
    r += count;
  }
}

template void Canvas::plain<u8>(int, int, Pass&, const BlockOut&) const;
template void Canvas::plain<float>(int, int, Pass&, const BlockOut&) const;

}  // namespace rn

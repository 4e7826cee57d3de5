// The state of a program that runs on one picture: pixels, and what is still to be done to them.
//
// Index maps (pad, crop, flip), one resampling, the normalisation and erasing are only noted, and
// happen together when `render` passes over the rows that are really wanted.
#pragma once
#include "blocks.h"
#include "color_rows.h"
#include "program.h"
#include "rows.h"

namespace rn {

struct Span {
  int first, count;
};

// Index maps along one axis: the steps, and the stretch where they are a plain shift or mirror.
class Axis {
 public:
  static constexpr int NO_FILL = 0, MIXED = 1;
  explicit Axis(int size = 0) : size_(size), end_(size) {}
  void crop(int offset, int size);  // a negative offset is not allowed: pad first
  void flip();
  void pad(int before, int after, u32 mode, int operation);

  int size() const { return size_; }
  int begin() const { return begin_; }
  int end() const { return end_; }
  int first() const { return first_; }  // base coordinate of `begin`
  int direction() const { return direction_; }
  int at(int place) const {  // base coordinate, or -1 - k where operation k fills
    return place >= begin_ && place < end_ ? first_ + (place - begin_) * direction_
                                           : resolve(steps_, count_, place);
  }
  bool is_plain() const { return begin_ == 0 && end_ == size_; }
  bool is_untouched() const { return count_ == 0; }
  // What is outside the plain stretch: NO_FILL (nothing ever was), -1 - k where operation k alone
  // fills it, or MIXED.
  int fill() const { return fill_; }
  Span span() const;  // the base coordinates that are read, from the least to the greatest

 private:
  AxisStep& add(i32 kind);
  AxisStep steps_[2 * MAX_OPERATIONS];
  int count_ = 0, size_ = 0, begin_ = 0, end_ = 0, first_ = 0, direction_ = 1;
  int fill_ = NO_FILL;
};

// Pixels as they are in memory: bytes (the picture itself) or floats (after a stage of its own).
struct Pixels {
  const u8* bytes = nullptr;
  const float* floats = nullptr;
  i64 row = 0, pixel = 0, channel = 0;  // strides in elements
  int origin_y = 0, origin_x = 0;       // coordinates of the first pixel there is

  float load(int y, int x, int c) const {
    const i64 at = (y - origin_y) * row + (x - origin_x) * pixel + c * channel;
    return bytes ? static_cast<float>(bytes[at]) : floats[at];
  }
};

// A rectangle to overwrite, in coordinates of the canvas (it may reach beyond after a crop).
struct Erasure {
  Box box;
  const Operation* operation;
  bool in_levels;  // its value is still to be normalised
};

// Takes rows of float32 planes and writes the wanted layout and type.
class Sink {
 public:
  Sink(void* out, const OutputSpec& spec, int channels, int height, int width, Scratch& scratch);
  // Float planes at out + channel * plane + row * line.
  Sink(float* out, i64 plane, i64 line, int channels);
  // Whether rows can be written where they belong, as a block in the wanted type.
  bool is_direct() const { return !interleaved_; }
  BlockOut block() const;
  int band() const { return band_; }  // most rows of floats at once
  BlockOut begin(int row) const;      // where to put the rows from there on
  void end(int row, int rows, const BlockOut& planes) const;  // they are there

 private:
  void* out_;
  i64 plane_, row_;  // elements from channel to channel and from row to row
  int channels_, width_ = 0, out_channels_ = 0;
  i32 dtype_ = FLOAT32;
  bool interleaved_ = false;
  int band_ = 1;
  float* rows_ = nullptr;    // planes of a band, when rows cannot be written in place
  float* pixels_ = nullptr;  // the band interleaved, before it is narrowed to 16 bits
};

constexpr int MAX_COLORS = 8;

// How the pixels that the index maps show are resampled, if at all.
enum class Sampling { none, affine, resize };

// Aligned, so that no store to it crosses a page: that took a tenth of the time of a small picture.
class alignas(64) Canvas {
 public:
  Canvas(const Operation* operations, const Image& image, const SampleKey& who, Scratch& scratch);

  int channels() const { return channels_; }
  int height() const { return sampling_ != Sampling::none ? after_y_.size() : y_.size(); }
  int width() const { return sampling_ != Sampling::none ? after_x_.size() : x_.size(); }
  const Axis& rows() const { return y_; }
  const Axis& columns() const { return x_; }
  const SampleKey& who() const { return who_; }
  Scratch& scratch() const { return scratch_; }

  void crop(const Box& box);
  void flip_x();
  void flip_y();
  void pad(int left, int top, int right, int bottom, u32 mode, int operation);
  void affine(const Affine& map, u32 flags, int operation);
  void resize(int height, int width, u32 filter);
  void color(const ColorStep& step);
  void normalize(const Operation& operation) { normalize_ = &operation; }
  void erase(const Box& box, const Operation& operation);

  // Everything noted is done; the canvas is float32 planes, row by row (H, C, W), at the result.
  float* floats() { return floats(nullptr); }
  float gray_mean();  // of the picture as it is now
  // The canvas becomes these planes (height, channels, width), with nothing noted.
  void replace(float* planes, int height, int width);
  void store(void* out, const OutputSpec& spec);

 private:
  struct Pass;  // what all rows of one pass share
  float* floats(double* gray_total);
  void render(const Sink& sink, double* gray_total);
  // Before an index map that pads and before another resampling.
  void settle() {
    if (sampling_ != Sampling::none || colors_ || normalize_ || erasures_) floats();
  }
  bool is_settled() const;
  // Whether rows of `planes_` are what colour works on.
  bool has_plain_planes() const {
    return planes_ && sampling_ == Sampling::none && y_.is_untouched() && x_.is_untouched();
  }
  void note_fill(int operation);
  void start(Pass& pass) const;
  void join_colors(Pass& pass, bool counts_gray);
  void start_plain(Pass& pass) const;
  void start_affine(Pass& pass) const;
  void start_resize(Pass& pass) const;
  template <class T>
  void start_planes(Pass& pass, const T** planes) const;
  // Rows [row, row + rows) that the index maps show, as planes of T, rows `stride` apart.
  template <class T>
  void show(int row, int rows, const Pass& pass, T* const* planes, i64 stride) const;
  template <class T>
  void show_inner(int source_row, int rows, T* const* planes, i64 stride) const;
  template <class T>
  void show_border(int source_row, const Pass& pass, T* const* row) const;
  template <class T>
  void show_filled(int row, int rows, const Pass& pass, T* const* planes, i64 stride) const;
  template <class T>
  void show_plain(int row, int rows, const Pass& pass, T* const* planes, i64 stride) const;
  template <class T>
  void show_line(int row, const Pass& pass, T* const* line) const;
  template <class T>
  bool is_straight(const T* base) const;
  // Rows [row, row + rows) of the result, before colour; a resize makes single rows of floats.
  void produce(int row, int rows, Pass& pass, const BlockOut& out) const;
  template <class T>
  void plain(int row, int rows, Pass& pass, const BlockOut& out) const;
  template <class T>
  void convert_rows(const T* from, int row, int rows, int channel, const Pass& pass,
                    const BlockOut& out) const;
  void resize_row(int row, const Pass& pass, float* const* planes) const;
  float value_of(const Erasure& erasure, int channel) const;
  void erase(int row, int rows, const BlockOut& out) const;
  Span erased_rows() const;
  void start_hole(Pass& pass, const Span& rows) const;
  bool can_stream(const OutputSpec& spec) const;
  void stream(const Sink& sink);
  void render_row(int row, Pass& pass, double* gray_total, const BlockOut& line) const;

  const Operation* operations_;
  SampleKey who_;
  Scratch& scratch_;
  Ahead* ahead_;
  Pixels pixels_;
  int channels_;
  Axis y_, x_;  // index maps of the pixels
  bool has_whole_fills_ = true;  // what they fill with are whole levels 0-255
  float* planes_ = nullptr;  // of a canvas of floats
  Sampling sampling_ = Sampling::none;
  Axis after_y_, after_x_;  // index maps of the resampled picture, never padded
  Affine map_;
  u32 affine_flags_ = 0;
  int affine_operation_ = 0;
  u32 filter_ = 0;
  int resized_height_ = 0, resized_width_ = 0;
  ColorStep color_[MAX_COLORS];
  int colors_ = 0;
  const Operation* normalize_ = nullptr;
  Erasure erased_[MAX_OPERATIONS];
  int erasures_ = 0;
  bool noise_ = false;  // an erasure holds per-pixel noise, whose place matters
};

}  // namespace rn

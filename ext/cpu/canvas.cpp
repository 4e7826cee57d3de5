#include "canvas.h"

#include <algorithm>
#include <cstring>

#include "bypass.h"

namespace rn {

constexpr int BAND_FLOATS = 3072;  // of a band on its way through the first-level cache

AxisStep& Axis::add(i32 kind) {
  AxisStep& step = steps_[count_++];
  step = {kind, 0, size_, 0, 0};
  return step;
}

void Axis::crop(int offset, int size) {
  if (offset != 0) add(STEP_SHIFT).offset = offset;
  const int begin = std::min(std::max(begin_ - offset, 0), size);
  const int end = std::max(std::min(end_ - offset, size), begin);
  first_ += (begin + offset - begin_) * direction_;
  begin_ = begin;
  end_ = end;
  size_ = size;
}

void Axis::flip() {
  add(STEP_FLIP);
  first_ += (end_ - begin_ - 1) * direction_;
  direction_ = -direction_;
  const int begin = size_ - end_;
  end_ = size_ - begin_;
  begin_ = begin;
}

void Axis::pad(int before, int after, u32 mode, int operation) {
  if (before == 0 && after == 0) return;
  const int code = mode == PAD_CONSTANT ? -1 - operation : MIXED;
  fill_ = fill_ == NO_FILL || fill_ == code ? code : MIXED;
  AxisStep& step = add(STEP_PAD);
  step.offset = before;
  step.mode = static_cast<i32>(mode);
  step.operation = operation;
  begin_ += before;
  end_ += before;
  size_ += before + after;
}

Span Axis::span() const {
  int low = 0, high = -1;
  const auto see = [&](int base) {
    if (base < 0) return;
    low = high < 0 ? base : std::min(low, base);
    high = std::max(high, base);
  };
  if (begin_ < end_) {
    see(first_);
    see(at(end_ - 1));
  }
  for (int i = 0; i < begin_; ++i) see(at(i));
  for (int i = end_; i < size_; ++i) see(at(i));
  return {low, high - low + 1};
}

Sink::Sink(void* out, const OutputSpec& spec, int channels, int height, int width, Scratch& scratch)
    : out_(out),
      plane_(i64(height) * width),
      row_(width),
      channels_(channels),
      width_(width),
      out_channels_(spec.channels),
      dtype_(spec.dtype),
      interleaved_(spec.layout == LAYOUT_NHWC && spec.channels > 1) {
  if (interleaved_) band_ = std::min(height, std::max(1, BAND_FLOATS / (out_channels_ * width)));
  const std::size_t pixels = std::size_t(band_) * width;
  if (dtype_ != FLOAT32 || interleaved_) rows_ = scratch.take<float>(pixels * channels);
  if (dtype_ != FLOAT32 && interleaved_) pixels_ = scratch.take<float>(pixels * out_channels_);
  if (!interleaved_ && out_channels_ > channels) {
    const std::size_t bytes = std::size_t(plane_) * (dtype_ == FLOAT32 ? 4 : 2);
    std::memset(static_cast<char*>(out) + bytes * channels, 0, bytes * (out_channels_ - channels));
  }
}

Sink::Sink(float* out, i64 plane, i64 line, int channels)
    : out_(out), plane_(plane), row_(line), channels_(channels) {}

BlockOut Sink::block() const {
  BlockOut out;
  const i64 bytes = plane_ * (dtype_ == FLOAT32 ? 4 : 2);
  for (int c = 0; c < channels_; ++c) out.planes[c] = static_cast<char*>(out_) + c * bytes;
  out.row = row_;
  out.dtype = dtype_;
  return out;
}

BlockOut Sink::begin(int row) const {
  BlockOut out;
  for (int c = 0; c < channels_; ++c)
    out.planes[c] = rows_ ? rows_ + i64(c) * band_ * width_
                          : static_cast<float*>(out_) + c * plane_ + row * row_;
  out.row = rows_ ? width_ : row_;
  return out;
}

void Sink::end(int row, int rows, const BlockOut& planes) const {
  if (!rows_) return;
  const RowKernels& kernels = row_kernels();
  const auto narrow = dtype_ == FLOAT16 ? kernels.to_float16 : kernels.to_bfloat16;
  const int count = rows * width_;
  u16* halves = static_cast<u16*>(out_);
  const float* from[MAX_CHANNELS];
  for (int c = 0; c < channels_; ++c) from[c] = static_cast<const float*>(planes.planes[c]);
  if (!interleaved_) {
    for (int c = 0; c < channels_; ++c) narrow(from[c], count, halves + c * plane_ + row * row_);
    return;
  }
  const i64 at = row * row_ * out_channels_;
  float* pixels = pixels_ ? pixels_ : static_cast<float*>(out_) + at;
  kernels.interleave(from, channels_, out_channels_, count, pixels);
  if (pixels_) narrow(pixels, count * out_channels_, halves + at);
}

Canvas::Canvas(const Operation* operations, const Image& image, const SampleKey& who,
               Scratch& scratch)
    : operations_(operations),
      who_(who),
      scratch_(scratch),
      ahead_(image.ahead),
      channels_(image.channels),
      y_(image.full_height ? image.full_height : image.height),
      x_(image.full_width ? image.full_width : image.width) {
  pixels_.bytes = image.pixels;
  pixels_.row = image.row_stride;
  pixels_.pixel = image.pixel_stride;
  pixels_.channel = image.channel_stride;
  pixels_.origin_y = image.origin_y;
  pixels_.origin_x = image.origin_x;
}

void Canvas::crop(const Box& box) {
  (sampling_ != Sampling::none ? after_y_ : y_).crop(box.top, box.height);
  (sampling_ != Sampling::none ? after_x_ : x_).crop(box.left, box.width);
  for (int k = 0; k < erasures_; ++k) {
    erased_[k].box.top -= box.top;
    erased_[k].box.left -= box.left;
  }
}

void Canvas::flip_x() {
  if (noise_) floats();
  (sampling_ != Sampling::none ? after_x_ : x_).flip();
  for (int k = 0; k < erasures_; ++k) {
    Box& box = erased_[k].box;
    box.left = width() - box.left - box.width;
  }
}

void Canvas::flip_y() {
  if (noise_) floats();
  (sampling_ != Sampling::none ? after_y_ : y_).flip();
  for (int k = 0; k < erasures_; ++k) {
    Box& box = erased_[k].box;
    box.top = height() - box.top - box.height;
  }
}

void Canvas::pad(int left, int top, int right, int bottom, u32 mode, int operation) {
  const int least = mode == PAD_REFLECT ? 1 : 0;  // a mirrored border is no wider than the picture
  const bool is_mirror = mode == PAD_REFLECT || mode == PAD_SYMMETRIC;
  if (is_mirror && (std::max(top, bottom) + least > height() || std::max(left, right) + least > width()))
    throw PictureError("a picture of " + std::to_string(height()) + "x" + std::to_string(width()) +
                       " is too small to be padded by its mirror image; use mode 'edge'");
  settle();
  note_fill(operation);
  y_.pad(top, bottom, mode, operation);
  x_.pad(left, right, mode, operation);
}

void Canvas::affine(const Affine& map, u32 flags, int operation) {
  const bool is_last = sampling_ == Sampling::affine && !colors_ && !normalize_ && !erasures_;
  if ((flags & AFFINE_JOINED) && is_last) {
    map_ = joined(map_, map);
    return;
  }
  settle();
  note_fill(operation);
  sampling_ = Sampling::affine;
  map_ = map;
  affine_flags_ = flags;
  affine_operation_ = operation;
  after_y_ = Axis(y_.size());
  after_x_ = Axis(x_.size());
}

void Canvas::note_fill(int operation) {
  for (int c = 0; c < channels_; ++c) {
    const float fill = operations_[operation].value[c];
    has_whole_fills_ = has_whole_fills_ && fill >= 0.0f && fill <= 255.0f && fill == floor_of(fill);
  }
}

void Canvas::erase(const Box& box, const Operation& operation) {
  if (box.height <= 0 || box.width <= 0) return;
  erased_[erasures_++] = {box, &operation, normalize_ == nullptr};
  noise_ = noise_ || (operation.kind == OP_ERASE && operation.flags == ERASE_NORMAL);
}

void Canvas::resize(int height, int width, u32 filter) {
  if (height == this->height() && width == this->width()) return;
  settle();
  const bool is_packed = pixels_.pixel == 1 || (pixels_.pixel == channels_ && pixels_.channel == 1);
  if (!y_.is_plain() || !x_.is_plain() || !is_packed) floats();
  sampling_ = Sampling::resize;
  filter_ = filter;
  resized_height_ = height;
  resized_width_ = width;
  after_y_ = Axis(height);
  after_x_ = Axis(width);
}

void Canvas::color(const ColorStep& step) {
  if (normalize_ || erasures_ || colors_ == MAX_COLORS) floats();
  color_[colors_++] = step;
}

bool Canvas::is_settled() const {
  return has_plain_planes() && !colors_ && !normalize_ && !erasures_;
}

float* Canvas::floats(double* gray_total) {
  if (is_settled() && !gray_total) return planes_;
  const int h = height(), w = width();
  float* planes = scratch_.take<float>(std::size_t(h) * channels_ * w);
  render(Sink(planes, w, i64(channels_) * w, channels_), gray_total);
  replace(planes, h, w);
  return planes;
}

float Canvas::gray_mean() {
  double total = 0.0;
  floats(&total);
  return static_cast<float>(total / (static_cast<double>(height()) * width()));
}

void Canvas::replace(float* planes, int height, int width) {
  pixels_ = Pixels();
  pixels_.floats = planes;
  pixels_.row = i64(channels_) * width;
  pixels_.pixel = 1;
  pixels_.channel = width;
  y_ = Axis(height);
  x_ = Axis(width);
  planes_ = planes;
  sampling_ = Sampling::none;
  colors_ = 0;
  has_whole_fills_ = true;
  noise_ = false;
  normalize_ = nullptr;
  erasures_ = 0;
}

void Canvas::store(void* out, const OutputSpec& spec) {
  const int h = height(), w = width();
  if (!spec.streams) {
    render(Sink(out, spec, channels_, h, w, scratch_), nullptr);
  } else if (can_stream(spec)) {
    stream(Sink(out, spec, channels_, h, w, scratch_));
  } else {
    const i64 bytes = i64(h) * w * spec.channels * (spec.dtype == FLOAT32 ? 4 : 2);
    u8* made = scratch_.take<u8>(bytes);
    render(Sink(made, spec, channels_, h, w, scratch_), nullptr);
    bypass_copy(static_cast<u8*>(out), made, bytes);
  }
}

}  // namespace rn

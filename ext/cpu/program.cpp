#include "program.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "canvas.h"
#include "effects.h"

namespace rn {

void* Scratch::bytes(std::size_t count) {
  // Kernels may read one group of eight beyond the end of a row.
  const std::size_t size = (count + 64 + 63) / 64 * 64;
  wanted_ += size;
  if (used_ + size <= capacity_) {
    void* found = static_cast<char*>(block_.get()) + used_;
    used_ += size;
    return found;
  }
  spilled_.emplace_back(std::aligned_alloc(64, size));
  if (!spilled_.back()) throw std::bad_alloc();
  return spilled_.back().get();
}

void Scratch::reset() {
  if (wanted_ > capacity_) {
    spilled_.clear();
    capacity_ = (wanted_ + wanted_ / 4 + 63) / 64 * 64;
    block_.reset(std::aligned_alloc(64, capacity_));
    if (!block_) throw std::bad_alloc();
  }
  used_ = wanted_ = 0;
}

Program::Program(const std::string& bytes) {
  if (bytes.size() < sizeof header_) throw std::invalid_argument("program: shorter than its header");
  std::memcpy(&header_, bytes.data(), sizeof header_);
  if (header_.magic != PROGRAM_MAGIC || header_.version != PROGRAM_VERSION)
    throw std::invalid_argument("program: not a transform program of this version");
  if (header_.count > MAX_OPERATIONS || header_.channels < 1 || header_.channels > MAX_CHANNELS ||
      bytes.size() != sizeof header_ + header_.count * sizeof(Operation))
    throw std::invalid_argument("program: wrong length or number of channels");
  operations_.resize(header_.count);
  std::memcpy(operations_.data(), bytes.data() + sizeof header_, header_.count * sizeof(Operation));
  for (const Operation& op : operations_)
    if (op.stream != 0 && std::find(streams_.begin(), streams_.end(), op.stream) == streams_.end())
      streams_.push_back(op.stream);
}

std::size_t Program::output_bytes(const OutputSpec& spec) const {
  const std::size_t channels = spec.channels ? spec.channels : header_.channels;
  return channels * header_.out_height * header_.out_width * (spec.dtype == FLOAT32 ? 4 : 2);
}

namespace {

std::string size_text(int height, int width) {
  return std::to_string(height) + "x" + std::to_string(width);
}

// Pads on both sides what a height x width picture lacks of the operation's size.
void pad_to(Canvas& canvas, const Operation& op, int index) {
  const int rows = op.size[0] - canvas.height(), columns = op.size[1] - canvas.width();
  const int y = rows > 0 ? rows : 0, x = columns > 0 ? columns : 0;
  canvas.pad(x, y, x, y, op.flags, index);
}

void center(Canvas& canvas, const Operation& op, int index) {
  const int rows = op.size[0] - canvas.height(), columns = op.size[1] - canvas.width();
  const int y = rows > 0 ? rows : 0, x = columns > 0 ? columns : 0;
  if (x || y) canvas.pad(x / 2, y / 2, (x + 1) / 2, (y + 1) / 2, PAD_CONSTANT, index);
  canvas.crop(center_crop(op, canvas.height(), canvas.width()));
}

void random_crop(Canvas& canvas, const Operation& op) {
  if (canvas.height() < op.size[0] || canvas.width() < op.size[1])
    throw PictureError("a picture of " + size_text(canvas.height(), canvas.width()) +
                       " is smaller than the crop of " + size_text(op.size[0], op.size[1]) +
                       "; pad it (pad_if_needed=True) or resize it first");
  canvas.crop(draw_crop(op, canvas.who(), canvas.height(), canvas.width()));
}

// Index maps: the operations that only move pixels. False when `op` is none.
bool move_pixels(Canvas& canvas, const Operation& op, int index) {
  switch (op.kind) {
    case OP_PAD:
      canvas.pad(op.size[0], op.size[1], op.size[2], op.size[3], op.flags, index);
      return true;
    case OP_PAD_TO: pad_to(canvas, op, index); return true;
    case OP_RANDOM_CROP: random_crop(canvas, op); return true;
    case OP_CENTER_CROP: center(canvas, op, index); return true;
    case OP_FLIP_X:
      if (draw_flip(op, canvas.who())) canvas.flip_x();
      return true;
    case OP_FLIP_Y:
      if (draw_flip(op, canvas.who())) canvas.flip_y();
      return true;
    default: return false;
  }
}

// Resize: to a fixed size, or the shorter side to size[0].
void resize(Canvas& canvas, const Operation& op) {
  const i64 h = canvas.height(), w = canvas.width(), side = op.size[0];
  if (op.size[1] != 0)
    canvas.resize(op.size[0], op.size[1], op.flags);
  else if (h <= w)
    canvas.resize(static_cast<int>(side), static_cast<int>(side * w / h), op.flags);
  else
    canvas.resize(static_cast<int>(side * h / w), static_cast<int>(side), op.flags);
}

void resized_crop(Canvas& canvas, const Operation& op) {
  canvas.crop(draw_resized_crop(op, canvas.who(), canvas.height(), canvas.width()));
  canvas.resize(op.size[0], op.size[1], op.flags);
}

void apply(Canvas& canvas, const Operation& op, int index) {
  if (move_pixels(canvas, op, index)) return;
  const int height = canvas.height(), width = canvas.width();
  switch (op.kind) {
    case OP_AFFINE:
      canvas.affine(affine_of(draw_affine(op, canvas.who(), height, width), op.flags), op.flags, index);
      return;
    case OP_RESIZE: resize(canvas, op); return;
    case OP_RESIZED_CROP: resized_crop(canvas, op); return;
    case OP_JITTER: jitter(canvas, op); return;
    case OP_GRAYSCALE: grayscale(canvas, op); return;
    case OP_AUTOCONTRAST: random_autocontrast(canvas, op); return;
    case OP_BLUR: blur(canvas, op); return;
    case OP_TRIVIAL:
    case OP_RANDAUGMENT: automatic(canvas, op, index); return;
    case OP_NORMALIZE: canvas.normalize(op); return;
    case OP_ERASE: canvas.erase(draw_erase(op, canvas.who(), height, width), op); return;
    case OP_CUTOUT: canvas.erase(draw_cutout(op, canvas.who(), height, width), op); return;
    default: throw std::invalid_argument("program: unknown operation " + std::to_string(op.kind));
  }
}

}  // namespace

Box Program::crop_of(int height, int width, const SampleKey& who) const {
  Scratch none;
  Image image = {};
  image.height = height;
  image.width = width;
  Canvas canvas(operations_.data(), image, who, none);
  for (std::size_t k = 0; k < operations_.size(); ++k) {
    const Operation& op = operations_[k];
    if (op.kind == OP_RESIZED_CROP) {
      canvas.crop(draw_resized_crop(op, who, canvas.height(), canvas.width()));
      break;
    }
    if (!move_pixels(canvas, op, static_cast<int>(k))) break;
  }
  const Span rows = canvas.rows().span(), columns = canvas.columns().span();
  return {rows.first, columns.first, rows.count, columns.count};
}

void Program::run(const Image& image, const SampleKey& who, void* out, const OutputSpec& spec,
                  Scratch& scratch) const {
  if (image.channels != channels())
    throw PictureError("a picture of " + std::to_string(image.channels) + " channels, expected " +
                       std::to_string(channels()));
  scratch.reset();
  // A quarter of the next picture now, while nothing is being written; the rest from channel to
  // channel.
  if (image.ahead) image.ahead->ask(image.ahead->size() / 4);
  OutputSpec wanted = spec;
  if (wanted.channels == 0) wanted.channels = channels();
  Canvas canvas(operations_.data(), image, who, scratch);
  for (std::size_t k = 0; k < operations_.size(); ++k)
    apply(canvas, operations_[k], static_cast<int>(k));
  if (canvas.height() != height() || canvas.width() != width())
    throw PictureError("a picture of " + size_text(canvas.height(), canvas.width()) +
                       " at the end of the transforms, expected " + size_text(height(), width()));
  canvas.store(out, wanted);
}

}  // namespace rn

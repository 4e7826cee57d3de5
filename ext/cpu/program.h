// A transform program, run on one picture: what the loader's workers call.
//
// `Program` is immutable and shared by all threads; each thread brings its own `Scratch`, which
// grows while the first pictures pass and allocates nothing afterwards.
#pragma once
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "renaissance/convert.h"
#include "renaissance/sampling.h"

namespace rn {

// Bytes that will be read soon: asked for piece by piece while something else is done, because a
// core keeps only about twenty lines under way.
class Ahead {
 public:
  void begin(const u8* bytes, i64 size) {
    next_ = bytes;
    size_ = size;
    end_ = bytes + size;
  }
  i64 size() const { return size_; }
  i64 left() const { return end_ - next_; }
  // Asks for the lines that the next `bytes` of them touch.
  void ask(i64 bytes) {
    const u8* to = end_ - next_ > bytes ? next_ + bytes : end_;
    for (; next_ < to; next_ += 64) __builtin_prefetch(next_);
  }
  void ask_all() { ask(end_ - next_); }

 private:
  const u8* next_ = nullptr;
  const u8* end_ = nullptr;
  i64 size_ = 0;
};

// A uint8 picture, possibly only a window of it (partial decode). Strides in bytes: HWC pixels
// have pixel_stride = channels and channel_stride = 1, planar ones pixel_stride = 1.
struct Image {
  const u8* pixels;  // first channel of pixel (origin_y, origin_x)
  int height, width, channels;
  i64 row_stride, pixel_stride, channel_stride;
  int origin_y = 0, origin_x = 0;          // where the window lies in the full picture
  int full_height = 0, full_width = 0;     // 0: the window is the full picture
  Ahead* ahead = nullptr;                  // of the picture that comes after this one
};

enum Layout : i32 { LAYOUT_NCHW = 0, LAYOUT_NHWC = 1 };

struct OutputSpec {
  i32 dtype = FLOAT32;  // Dtype of convert.h
  i32 layout = LAYOUT_NCHW;
  int channels = 0;  // 0: the program's; more: the rest is filled with zeros
  bool streams = false;  // past the caches: 64-byte aligned, nobody reads it soon (bypass.h)
};

// Memory of one worker, handed out from a block that is as large as the largest picture needed.
class Scratch {
 public:
  template <class T>
  T* take(std::size_t count) {
    return static_cast<T*>(bytes(count * sizeof(T)));
  }
  void reset();  // everything handed out is free again
  std::size_t capacity() const { return capacity_; }

 private:
  void* bytes(std::size_t count);
  struct Release {
    void operator()(void* block) const { std::free(block); }
  };
  std::unique_ptr<void, Release> block_;
  std::vector<std::unique_ptr<void, Release>> spilled_;  // of this picture only
  std::size_t capacity_ = 0, used_ = 0, wanted_ = 0;
};

// A picture that this program cannot take (too small for its crop, wrong channels).
class PictureError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Program {
 public:
  explicit Program(const std::string& bytes);  // std::invalid_argument when malformed

  int channels() const { return static_cast<int>(header_.channels); }
  int height() const { return header_.out_height; }
  int width() const { return header_.out_width; }
  std::size_t output_bytes(const OutputSpec& spec) const;

  // The pixels of a height x width picture that this sample reads: decode no more than that.
  Box crop_of(int height, int width, const SampleKey& who) const;

  // Writes output_bytes(spec) bytes at `out`; the picture is not modified. PictureError.
  void run(const Image& image, const SampleKey& who, void* out, const OutputSpec& spec,
           Scratch& scratch) const;

  // The same bytes, element by element as a GPU thread computes them; for programs of a single pass
  // over a whole picture of known size. Slow: it is there to test what the GPU runs.
  void run_by_element(const Image& image, const SampleKey& who, void* out,
                      const OutputSpec& spec) const;

  const std::vector<Operation>& operations() const { return operations_; }
  const std::vector<u32>& streams() const { return streams_; }  // that are drawn from

 private:
  ProgramHeader header_;
  std::vector<Operation> operations_;
  std::vector<u32> streams_;
};

// AVX2 kernels where the machine has them (true) or portable ones; both give the same bits.
// Returns what is in use now.
bool use_simd(bool wanted);

}  // namespace rn

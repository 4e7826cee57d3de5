// Where the bytes of a sample come from: arrays in memory, files, or Python (foreign).
//
// A source is shared by all workers and has no state of its own; what a worker needs to work with
// (decoder, buffers, scratch) is its Workbench.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "foresight.h"
#include "jpeg.h"
#include "program.h"

namespace rn {

// Bytes that grow and never shrink: nothing is allocated once the largest file has been seen.
class Buffer {
 public:
  u8* reserve(std::size_t bytes) {
    if (bytes > capacity_) {
      memory_.reset(new u8[bytes]);
      capacity_ = bytes;
    }
    return memory_.get();
  }
  u8* data() const { return memory_.get(); }

 private:
  std::unique_ptr<u8[]> memory_;
  std::size_t capacity_ = 0;
};

// One worker's own things, and what it fetched last.
struct Workbench {
  JpegDecoder decoder;
  Buffer file, pixels;
  Ahead ahead;                      // of the sample that comes next
  Foresight foresight;              // of the item under way
  Scratch scratch;
  Image image{};                    // after PICTURE
  const u8* row = nullptr;          // after ROW
  std::string problem;              // after DAMAGED
  u64 decode_nanoseconds = 0;       // CPU time of this thread in the decoder
  u64 clock = 0, clock_decode = 0;  // CPU time, and decode_nanoseconds, that are accounted for
  int items = 0;                    // done since then
};

enum class Fetched {
  PICTURE,  // bench.image
  ROW,      // bench.row: bytes that go to the batch as they are
  FOREIGN,  // Python has to read or decode this one
  DAMAGED,  // bench.problem says why
};

// What the program will look at, so that a decoder may leave out the rest.
struct Want {
  const Program* program;
  SampleKey key;
};

class Source {
 public:
  virtual ~Source() = default;
  virtual Fetched fetch(i64 id, const Want& want, Workbench& bench) const = 0;
  // A hint that `id` comes next: its bytes are what `ahead` asks for.
  virtual void prefetch(i64, Ahead&) const {}
  // Whether C++ workers have anything to do; otherwise Python threads do it all.
  virtual bool is_native() const { return true; }
  // Whether one sample is work enough for an item of its own.
  virtual bool is_encoded() const { return false; }
};

// uint8 pictures (n, height, width, channels) in memory, channels together or in planes.
class PictureSource : public Source {
 public:
  // `strides` in bytes: from picture, row, pixel, channel to the next.
  PictureSource(u64 address, int height, int width, int channels, const std::array<i64, 4>& strides)
      : first_{reinterpret_cast<const u8*>(address),
               height,
               width,
               channels,
               strides[1],
               strides[2],
               strides[3]},
        stride_(strides[0]) {}
  Fetched fetch(i64 id, const Want&, Workbench& bench) const override;
  void prefetch(i64 id, Ahead& ahead) const override;

 private:
  Image first_;
  i64 stride_;
};

// Rows of any type that pass untouched.
class RowSource : public Source {
 public:
  RowSource(u64 address, i64 row_bytes)
      : base_(reinterpret_cast<const u8*>(address)), row_bytes_(row_bytes) {}
  Fetched fetch(i64 id, const Want&, Workbench& bench) const override {
    bench.row = base_ + id * row_bytes_;
    return Fetched::ROW;
  }

 private:
  const u8* base_;
  i64 row_bytes_;
};

// Files by path. JPEG (by its first bytes) is decoded here when the build has libjpeg.
class FileSource : public Source {
 public:
  // `paths`: all paths one after another; path i is [offsets[i], offsets[i + 1]).
  FileSource(std::string paths, std::vector<i64> offsets, int channels, bool decode_jpeg)
      : paths_(std::move(paths)),
        offsets_(std::move(offsets)),
        channels_(channels),
        decode_jpeg_(decode_jpeg && JpegDecoder::available()) {}
  Fetched fetch(i64 id, const Want& want, Workbench& bench) const override;
  bool is_encoded() const override { return true; }
  std::string path(i64 id) const {
    return paths_.substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
  }

 private:
  std::string paths_;
  std::vector<i64> offsets_;
  int channels_;
  bool decode_jpeg_;
};

// Every sample is read by Python.
class ForeignSource : public Source {
 public:
  Fetched fetch(i64, const Want&, Workbench&) const override { return Fetched::FOREIGN; }
  bool is_native() const override { return false; }
  bool is_encoded() const override { return true; }
};

// Decodes a JPEG in memory, only what `want` needs of it when it has a program.
Fetched decode_picture(const u8* data, std::size_t size, int channels, const Want& want,
                       Workbench& bench);

// A contiguous (height, width, channels) picture.
Image picture_at(const u8* pixels, int height, int width, int channels);

// Reads a whole file into bench.file; its size, or -1 with bench.problem set.
i64 read_file(const std::string& path, Workbench& bench);

// CPU time of the calling thread.
u64 thread_nanoseconds();

}  // namespace rn

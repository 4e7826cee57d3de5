// The transform program: what Python writes, host workers and the CUDA kernel read.
//
// A program is a ProgramHeader followed by `count` Operations, little-endian, no pointers. Sizes are
// in pixels, pixel values in levels 0-255 until OP_NORMALIZE and in normalised units after it.
#pragma once
#include "philox.h"

namespace rn {

constexpr u32 PROGRAM_MAGIC = 0x50414E52u;  // "RNAP"
constexpr u32 PROGRAM_VERSION = 1;
constexpr int MAX_CHANNELS = 4;
constexpr int MAX_OPERATIONS = 32;
constexpr int MAX_BLUR = 63;  // taps of a blur along one axis

enum OperationKind : u32 {
  OP_PAD = 1,            // size: left, top, right, bottom; flags: PadMode; value: fill
  OP_PAD_TO = 2,         // size: height, width that must be reached, the deficit on both sides
  OP_RANDOM_CROP = 3,    // size: height, width
  OP_CENTER_CROP = 4,    // size: height, width; a smaller picture is padded with 0
  OP_FLIP_X = 5,         // p
  OP_FLIP_Y = 6,         // p
  OP_AFFINE = 7,         // range: AffineRange pairs; flags: AffineFlag; value: fill
  OP_RESIZE = 8,         // size: height, width (width 0: height is the shorter side); flags: Filter
  OP_RESIZED_CROP = 9,   // size: height, width; range: scale, log ratio, ratio; flags: Filter
  OP_JITTER = 10,        // range: brightness, contrast, saturation, hue; flags: bit per enabled one
  OP_GRAYSCALE = 11,     // p
  OP_AUTOCONTRAST = 12,  // p
  OP_BLUR = 13,          // size: kernel width, height; range: sigma
  OP_TRIVIAL = 14,       // size: bins; flags: AFFINE_NEAREST or 0; value: fill
  OP_RANDAUGMENT = 15,   // size: bins, operations, magnitude; flags, value as above
  OP_NORMALIZE = 16,     // value: x * value[c] + value[4 + c]
  OP_ERASE = 17,         // p; range: scale, log ratio; flags: EraseFlag; value: per channel
  OP_CUTOUT = 18,        // p; size: height, width of the box; value: per channel
};

enum PadMode : u32 { PAD_CONSTANT = 0, PAD_EDGE = 1, PAD_REFLECT = 2, PAD_SYMMETRIC = 3 };
enum Filter : u32 { FILTER_BILINEAR = 0, FILTER_BICUBIC = 1, FILTER_NEAREST = 2 };
enum EraseFlag : u32 { ERASE_VALUE = 0, ERASE_NORMAL = 1 };
enum AffineFlag : u32 {
  AFFINE_NEAREST = 1,       // nearest pixel, else bilinear
  AFFINE_JOINED = 2,        // one resampling together with the operation before
  AFFINE_COUNTER = 4,       // positive angles turn counter-clockwise (rotation), else clockwise
  AFFINE_DRAWS_ANGLE = 8,   // which parameters are drawn at all
  AFFINE_DRAWS_SHIFT = 16,
  AFFINE_DRAWS_SCALE = 32,
  AFFINE_DRAWS_SHEAR = 64,
};
// Pairs in Operation::range of OP_AFFINE: angle low, high (degrees); largest shift as a fraction of
// width, height; scale low, high; shear x low, high; shear y low, high (degrees).
enum AffineRange { RANGE_ANGLE = 0, RANGE_SHIFT = 2, RANGE_SCALE = 4, RANGE_SHEAR = 6 };

struct Operation {
  u32 kind;
  u32 stream;  // counter word of draw 0: type of the transform << 27 | its occurrence << 22
  u32 flags;
  float p;
  i32 size[4];
  float range[12];
  float value[8];
};
static_assert(sizeof(Operation) == 112, "Python packs 28 words");

struct ProgramHeader {
  u32 magic, version, count, channels;
  i32 in_height, in_width;    // 0: pictures differ in size
  i32 out_height, out_width;  // always known
};
static_assert(sizeof(ProgramHeader) == 32, "Python packs 8 words");

// What was drawn ahead for a sample: first[k * stride] is the first block of stream streams[k].
struct Foreseen {
  const u32* streams;
  const Block* first;
  i32 count, stride;
};

// Who is drawn for: key = hash(seed, "augment"), epoch, sample id.
struct SampleKey {
  u64 key;
  u32 epoch;
  u64 id;
  const Foreseen* foreseen = nullptr;  // changes no bit, only the time
};

// The words of one operation for one sample, in order. A rejected try takes words of its own
// operation only, so nothing an operation does moves another.
struct Draws {
  SampleKey who;
  u32 stream;
  u32 taken;
  u32 ahead;  // words in `block` that were drawn before they were asked for
  Block block;
};

RN_HD Draws draws_of(const SampleKey& who, u32 stream) {
  Draws draws = {who, stream, 0u, 0u, {{0, 0, 0, 0}}};
  if (who.foreseen == nullptr) return draws;
  const Foreseen& seen = *who.foreseen;
  for (i32 k = 0; k < seen.count; ++k)
    if (seen.streams[k] == stream) {
      draws.block = seen.first[k * seen.stride];
      draws.ahead = 4u;
    }
  return draws;
}

RN_HD u32 next_word(Draws& draws) {
  const u32 place = draws.taken & 3u;
  if (place == 0u && draws.taken >= draws.ahead)
    draws.block = keyed(draws.who.key, draws.stream + (draws.taken >> 2), draws.who.epoch, draws.who.id);
  draws.taken += 1u;
  return draws.block.word[place];
}

}  // namespace rn

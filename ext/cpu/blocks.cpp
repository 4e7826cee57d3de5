// The portable block kernels: what every other version of them must equal bit for bit.
#include "blocks.h"

#include "rows.h"

namespace rn {
namespace {

void split(const BytesIn& in, u8* const* planes, i64 out_row) {
  for (int c = 0; c < in.channels; ++c)
    for (int r = 0; r < in.rows; ++r) {
      const u8* from = in.source + r * in.row + c * in.channel;
      u8* to = planes[c] + r * out_row;
      for (int i = 0; i < in.count; ++i) to[i] = from[i * in.pixel];
    }
}

template <class T>
void convert(const T* source, i64 count, float scale, float shift, const RunOut& out) {
  for (i64 i = 0; i < count; ++i)
    put(out.at, i, out.dtype, static_cast<float>(source[i]) * scale + shift);
}

void masked(const u8* source, const Mask& mask, i64 rows, float scale, float shift,
            const RunOut& out) {
  for (i64 i = 0; i < rows * mask.width; ++i)
    put(out.at, i, out.dtype,
        mask.columns[i % mask.width] ? mask.value : static_cast<float>(source[i]) * scale + shift);
}

// fetch(channel, offset, dy, dx) reads one neighbour; the offset is the upper left one's.
template <class Fetch>
void resample(const AffineBlock& in, const Scaling& scaling, const BlockOut& out,
              const Fetch& fetch) {
  for (int r = 0; r < in.rows; ++r) {
    const RowMap map = row_map(in.map, in.first_y + r * in.step_y, in.height, in.width);
    for (int i = 0; i < in.count; ++i) {
      const Place place = place_of(map, in.first_x + i * in.step_x, in.height, in.width, in.nearest);
      const int at = (place.top + 1) * in.stride + place.left + 1;
      for (int c = 0; c < in.channels; ++c) {
        const float value = in.nearest ? fetch(c, at, 0, 0)
                                       : bilinear(fetch(c, at, 0, 0), fetch(c, at, 0, 1),
                                                  fetch(c, at, 1, 0), fetch(c, at, 1, 1), place.fx,
                                                  place.fy);
        put(out.planes[c], r * out.row + i, out.dtype, value * scaling.scale[c] + scaling.shift[c]);
      }
    }
  }
}

void affine_pairs(const AffineBlock& in, const Scaling& scaling, const BlockOut& out) {
  resample(in, scaling, out, [&in](int c, int at, int dy, int dx) {
    return static_cast<float>((in.pairs[c][at + dx] >> (8 * dy)) & 0xff);
  });
}

void affine_floats(const AffineBlock& in, const Scaling& scaling, const BlockOut& out) {
  resample(in, scaling, out,
           [&in](int c, int at, int dy, int dx) { return in.planes[c][at + dy * in.stride + dx]; });
}

}  // namespace

const BlockKernels& portable_blocks() {
  static const BlockKernels kernels = {split, convert<u8>, convert<float>, masked,
                                       affine_pairs, affine_floats};
  return kernels;
}

const BlockKernels& block_kernels() { return simd_in_use() ? *avx2_blocks() : portable_blocks(); }

}  // namespace rn

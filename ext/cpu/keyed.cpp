#include "keyed.h"

#include "renaissance/dropout.h"
#include "rows.h"

namespace rn {

void keyed_blocks(u64 key, u32 stream, u32 when, const u64* ids, i64 count, Block* out) {
  if (simd_in_use() && keyed_blocks_avx2(key, stream, when, ids, count, out)) return;
  for (i64 i = 0; i < count; ++i) out[i] = keyed(key, stream, when, ids[i]);
}

void quad_blocks(u64 key, const u64* quads, u64 sample, i64 count, Block* out) {
  if (simd_in_use() && quad_blocks_avx2(key, quads, sample, count, out)) return;
  const LayerDraw draw{key, static_cast<i64>(sample)};
  for (i64 i = 0; i < count; ++i) out[i] = quad_words(draw, 0, quads[i]);
}

}  // namespace rn

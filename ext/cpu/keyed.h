// Philox blocks of many ids at once: what a work item or a permutation draws, with AVX2 where the
// machine has it. Portable and vector versions give the same words (they are whole numbers).
#pragma once
#include "renaissance/philox.h"

namespace rn {

// out[i] = keyed(key, stream, when, ids[i]).
void keyed_blocks(u64 key, u32 stream, u32 when, const u64* ids, i64 count, Block* out);

// out[i] = the block of quads[i] of a sample (renaissance/dropout.h).
void quad_blocks(u64 key, const u64* quads, u64 sample, i64 count, Block* out);

// The same with the vector unit; false where the compiler has no AVX2.
bool keyed_blocks_avx2(u64 key, u32 stream, u32 when, const u64* ids, i64 count, Block* out);
bool quad_blocks_avx2(u64 key, const u64* quads, u64 sample, i64 count, Block* out);

}  // namespace rn

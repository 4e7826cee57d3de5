// float32 to and from 16 bits over a block; meant to be inlined into a loop under run_wide.
#pragma once
#include "renaissance/convert.h"

namespace rn {

inline void round_block(const float* __restrict src, u16* __restrict dst, Dtype type, i64 count) {
  if (type == BFLOAT16) {
    for (i64 i = 0; i < count; ++i) dst[i] = to_bfloat16(src[i]);
  } else {
    for (i64 i = 0; i < count; ++i) dst[i] = to_float16(src[i]);
  }
}

inline void widen_block(const u16* __restrict src, float* __restrict dst, i32 type, i64 count) {
  if (type == BFLOAT16) {
    for (i64 i = 0; i < count; ++i) dst[i] = from_bfloat16(src[i]);
  } else {
    for (i64 i = 0; i < count; ++i) dst[i] = from_float16(src[i]);
  }
}

}  // namespace rn

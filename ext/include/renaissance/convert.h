// float32 to and from bfloat16 and float16, by integers: equal bits on host and device.
//
// Rounding is to nearest, ties to even; overflow gives infinity; every NaN becomes the canonical
// quiet NaN of the sign-less pattern below. The functions are free of branches so that host
// compilers vectorise loops over them.
#pragma once
#include "portable.h"

namespace rn {

enum Dtype : i32 { FLOAT32 = 0, BFLOAT16 = 1, FLOAT16 = 2 };

RN_HD float from_bfloat16(u16 x) { return float_of(static_cast<u32>(x) << 16); }

RN_HD u16 to_bfloat16(float x) {
  const u32 bits = bits_of(x);
  const u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<u16>(is_nan ? 0x7fc0u : rounded);
}

RN_HD float from_float16(u16 x) {
  const u32 sign = static_cast<u32>(x & 0x8000u) << 16;
  const u32 shifted = static_cast<u32>(x & 0x7fffu) << 13;
  const u32 exponent = x & 0x7c00u;
  const u32 normal = shifted + (exponent == 0x7c00u ? 0x70000000u : 0x38000000u);
  // A subnormal is a whole number of 2^-24, exact in float32.
  const u32 small = bits_of(static_cast<float>(static_cast<i32>(x & 0x3ffu)) * 5.9604644775390625e-8f);
  return float_of(sign | (exponent == 0 ? small : normal));
}

RN_HD u16 to_float16(float x) {
  const u32 bits = bits_of(x);
  const u32 sign = (bits >> 16) & 0x8000u;
  const u32 magnitude = bits & 0x7fffffffu;
  const u32 normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  // One unit in the last place of 0.5 is 2^-24, the spacing of float16 subnormals.
  const u32 small = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
  u32 found = magnitude < 0x38800000u ? small : normal;         // below 2^-14
  found = magnitude >= 0x477ff000u ? 0x7c00u : found;           // 65520 and above: infinity
  found = magnitude > 0x7f800000u ? 0x7e00u : found;            // NaN
  return static_cast<u16>(sign | found);
}

RN_HD float load_float(const void* source, i32 dtype, i64 index) {
  if (dtype == FLOAT32) return static_cast<const float*>(source)[index];
  const u16 half = static_cast<const u16*>(source)[index];
  return dtype == BFLOAT16 ? from_bfloat16(half) : from_float16(half);
}

}  // namespace rn

// What differs between the host compiler and NVRTC, in one place.
//
// Every other header under this folder is plain C++17 over these names. NVRTC finds no standard
// header, so fixed-width types and bit casts are spelled out for it. Contraction to fused
// multiply-add is off on both sides (-ffp-contract=off; NVRTC fmad off): host and device agree bit
// for bit on + - * / and sqrt, and therefore on everything that is built from them.
#pragma once

#ifdef __CUDACC_RTC__
namespace rn {
typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
}  // namespace rn
#define RN_HD __host__ __device__ __forceinline__
#else
#include <cmath>
#include <cstdint>
#include <cstring>
namespace rn {
typedef std::int8_t i8;
typedef std::uint8_t u8;
typedef std::int16_t i16;
typedef std::uint16_t u16;
typedef std::int32_t i32;
typedef std::uint32_t u32;
typedef std::int64_t i64;
typedef std::uint64_t u64;
}  // namespace rn
#define RN_HD inline
#endif

namespace rn {

RN_HD u32 bits_of(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  u32 u;
  memcpy(&u, &x, 4);
  return u;
#endif
}

RN_HD float float_of(u32 u) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(u);
#else
  float x;
  memcpy(&x, &u, 4);
  return x;
#endif
}

// Correctly rounded square roots on both sides (NVRTC is given prec-sqrt, its default).
RN_HD float root(float x) {
#ifdef __CUDA_ARCH__
  return __fsqrt_rn(x);
#else
  return std::sqrt(x);
#endif
}

RN_HD double root(double x) {
#ifdef __CUDA_ARCH__
  return __dsqrt_rn(x);
#else
  return std::sqrt(x);
#endif
}

RN_HD bool is_finite(float x) { return (bits_of(x) & 0x7f800000u) != 0x7f800000u; }

RN_HD bool is_finite(double x) { return x - x == 0.0; }

// The high 64 bits of a 64 by 64 bit product.
RN_HD u64 mul_high(u64 a, u64 b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  return static_cast<u64>((static_cast<unsigned __int128>(a) * b) >> 64);
#endif
}

}  // namespace rn

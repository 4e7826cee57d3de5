// Philox4x32-10 for eight counters at a time, which differ in two of their words. A counter word lives in the lower half of a 64-bit lane,
// where the multiplication wants it; the upper half may hold anything, for nothing reads it.
#include "keyed.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define RN_AVX2 __attribute__((target("avx2")))
#define RN_INLINE RN_AVX2 __attribute__((always_inline)) inline

namespace rn {
namespace {

constexpr int LANES = 4, GROUPS = 2, TOGETHER = LANES * GROUPS;

struct Counters {
  __m256i c[4];
};

RN_INLINE __m256i all(u32 word) { return _mm256_set1_epi64x(word); }

// What is the same in all counters, and where it stands: before the words that differ, or behind.
struct Fixed {
  u32 low, high;
  bool is_first;
};

RN_INLINE Counters counters(const Fixed& fixed, const u64* ids) {
  const __m256i id = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(ids));
  const __m256i upper = _mm256_srli_epi64(id, 32);
  if (fixed.is_first) return {{all(fixed.low), all(fixed.high), id, upper}};
  return {{id, upper, all(fixed.low), all(fixed.high)}};
}

RN_INLINE void round_of(Counters& at, __m256i k0, __m256i k1) {
  const __m256i p0 = _mm256_mul_epu32(at.c[0], all(0xD2511F53u));
  const __m256i p1 = _mm256_mul_epu32(at.c[2], all(0xCD9E8D57u));
  at.c[0] = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(at.c[1], k0));
  at.c[1] = p1;
  at.c[2] = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(at.c[3], k1));
  at.c[3] = p0;
}

// Two words of each lane side by side.
RN_INLINE __m256i joined(__m256i low, __m256i high) {
  return _mm256_blend_epi32(low, _mm256_slli_epi64(high, 32), 0xaa);
}

RN_INLINE void store(const Counters& at, Block* out) {
  const __m256i first = joined(at.c[0], at.c[1]), second = joined(at.c[2], at.c[3]);
  const __m256i even = _mm256_unpacklo_epi64(first, second);  // blocks 0 and 2
  const __m256i odd = _mm256_unpackhi_epi64(first, second);
  __m256i* to = reinterpret_cast<__m256i*>(out);
  _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
  _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
}

RN_INLINE void eight(u64 key, const Fixed& fixed, const u64* ids, Block* out) {
  Counters at[GROUPS];
  for (int g = 0; g < GROUPS; ++g) at[g] = counters(fixed, ids + g * LANES);
  u32 k0 = static_cast<u32>(key), k1 = static_cast<u32>(key >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
    for (int g = 0; g < GROUPS; ++g) round_of(at[g], all(k0), all(k1));
  for (int g = 0; g < GROUPS; ++g) store(at[g], out + g * LANES);
}

RN_AVX2 void blocks(u64 key, const Fixed& fixed, const u64* ids, i64 count, Block* out) {
  i64 i = 0;
  for (; i + TOGETHER <= count; i += TOGETHER) eight(key, fixed, ids + i, out + i);
  if (i == count) return;
  u64 last[TOGETHER] = {};
  Block made[TOGETHER];
  for (i64 k = i; k < count; ++k) last[k - i] = ids[k];
  eight(key, fixed, last, made);
  for (i64 k = i; k < count; ++k) out[k] = made[k - i];
}

}  // namespace

bool keyed_blocks_avx2(u64 key, u32 stream, u32 when, const u64* ids, i64 count, Block* out) {
  blocks(key, {stream, when, true}, ids, count, out);
  return true;
}

bool quad_blocks_avx2(u64 key, const u64* quads, u64 sample, i64 count, Block* out) {
  blocks(key, {static_cast<u32>(sample), static_cast<u32>(sample >> 32), false}, quads, count, out);
  return true;
}

}  // namespace rn

#else

namespace rn {
bool keyed_blocks_avx2(u64, u32, u32, const u64*, i64, Block*) { return false; }
bool quad_blocks_avx2(u64, const u64*, u64, i64, Block*) { return false; }
}  // namespace rn

#endif

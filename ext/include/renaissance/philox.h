// Philox4x32-10 and the keys of everything that is drawn.
//
// Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A draw is a
// pure function of a 64-bit key and a 128-bit counter; nothing here has state.
#pragma once
#include "portable.h"

namespace rn {

struct Block {
  u32 word[4];
};

RN_HD Block philox(u32 c0, u32 c1, u32 c2, u32 c3, u32 k0, u32 k1) {
  for (int round = 0; round < 10; ++round) {
    const u64 p0 = static_cast<u64>(0xD2511F53u) * c0;
    const u64 p1 = static_cast<u64>(0xCD9E8D57u) * c2;
    const u32 n0 = static_cast<u32>(p1 >> 32) ^ c1 ^ k0;
    const u32 n2 = static_cast<u32>(p0 >> 32) ^ c3 ^ k1;
    c0 = n0;
    c1 = static_cast<u32>(p1);
    c2 = n2;
    c3 = static_cast<u32>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// The block of a Generator: counter (offset lo, offset hi, 0, 0), key (seed lo, seed hi).
RN_HD Block philox(u64 seed, u64 offset) {
  return philox(static_cast<u32>(offset), static_cast<u32>(offset >> 32), 0u, 0u,
                static_cast<u32>(seed), static_cast<u32>(seed >> 32));
}

// SplitMix64's finalizer (Steele, Lea, Flood, OOPSLA 2014): a bijection that mixes every bit.
RN_HD u64 mix64(u64 z) {
  z += 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// A child key: hashing, never XOR or addition of small integers, so that (seed 1, epoch 0) and
// (seed 0, epoch 1) have nothing in common.
RN_HD u64 derive(u64 key, u64 word) { return mix64(mix64(key) ^ (word + 0x632BE59BD9B4E019ull)); }

// What a key is for. The numbers are part of the file format of a run: never reuse one.
enum Purpose : u32 {
  PURPOSE_INIT = 1,
  PURPOSE_ORDER = 2,
  PURPOSE_AUGMENT = 3,
  PURPOSE_DROPOUT = 4,
  PURPOSE_MIX = 5,
  PURPOSE_REPLACE = 6,
  PURPOSE_SPLIT = 7,
};

RN_HD u64 purpose_key(u64 seed, u32 purpose) { return derive(seed, purpose); }

// Keyed draws: key = hash(seed, purpose), counter = (operation and draw, epoch or step, id lo, hi).
RN_HD Block keyed(u64 key, u32 stream, u32 when, u64 id) {
  return philox(stream, when, static_cast<u32>(id), static_cast<u32>(id >> 32),
                static_cast<u32>(key), static_cast<u32>(key >> 32));
}

// [0, 1) in steps of 2^-24, exact in float32.
RN_HD float unit(u32 word) { return static_cast<float>(word >> 8) * 5.9604644775390625e-8f; }

// (0, 1]: the same without zero, for logarithms.
RN_HD float unit_above_zero(u32 word) {
  return static_cast<float>((word >> 8) | 1u) * 5.9604644775390625e-8f;
}

RN_HD u64 word64(const Block& block) {
  return (static_cast<u64>(block.word[1]) << 32) | block.word[0];
}

// A number in [0, n) from 64 random bits (Lemire 2019, multiply-shift). The bias is at most
// n / 2^64; n = 0 stands for 2^64. Exact unbiasedness needs the rejection of `below_unbiased`.
RN_HD u64 below(u64 random, u64 n) { return n ? mul_high(random, n) : random; }

// Whether `below(random, n)` has to be drawn again to be exactly uniform.
RN_HD bool rejects(u64 random, u64 n) { return n && random * n < (0ull - n) % n; }

}  // namespace rn

// The order of an epoch: a permutation of [0, n) that is a function of (key, n) alone.
//
// Small sets: Fisher and Yates (Durstenfeld 1964) with exactly unbiased integers, each retry with a
// counter word of its own. Large sets: an unbalanced Feistel network with cycle walking (Black and
// Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002), O(1) memory and random access.
#pragma once
#include "philox.h"

namespace rn {

constexpr u64 SHUFFLE_LIMIT = 1ull << 22;  // up to here Fisher-Yates, above it Feistel
constexpr int FEISTEL_ROUNDS = 10;         // at least 8: fewer show in a pair test (see docs)

// A number in [0, n), exactly uniform: draw number `index` of this key.
RN_HD u64 below_unbiased(u64 key, u64 index, u64 n) {
  for (u32 attempt = 0;; ++attempt) {
    const u64 random = word64(keyed(key, 0u, attempt, index));
    if (!rejects(random, n)) return below(random, n);
  }
}

struct Feistel {
  u64 key, n;
  int low_bits, high_bits;  // the halves; their sum is the fewest bits that hold n - 1
};

RN_HD Feistel feistel(u64 key, u64 n) {
  int bits = 2;
  while (bits < 64 && ((n - 1) >> bits) != 0) ++bits;
  return {key, n, bits / 2, bits - bits / 2};
}

RN_HD u64 feistel_round(u64 key, int round, u64 half, int bits) {
  return word64(keyed(key, 1u, static_cast<u32>(round), half)) & ((1ull << bits) - 1);
}

// One pass of the network over its own domain of 2^(low + high) numbers.
RN_HD u64 feistel_once(const Feistel& f, u64 x) {
  u64 low = x & ((1ull << f.low_bits) - 1);
  u64 high = x >> f.low_bits;
  for (int round = 0; round < FEISTEL_ROUNDS; round += 2) {
    high ^= feistel_round(f.key, round, low, f.high_bits);
    low ^= feistel_round(f.key, round + 1, high, f.low_bits);
  }
  return (high << f.low_bits) | low;
}

RN_HD u64 feistel_once_back(const Feistel& f, u64 x) {
  u64 low = x & ((1ull << f.low_bits) - 1);
  u64 high = x >> f.low_bits;
  for (int round = FEISTEL_ROUNDS - 2; round >= 0; round -= 2) {
    low ^= feistel_round(f.key, round + 1, high, f.low_bits);
    high ^= feistel_round(f.key, round, low, f.high_bits);
  }
  return (high << f.low_bits) | low;
}

RN_HD u64 feistel_at(const Feistel& f, u64 position) {
  u64 x = feistel_once(f, position);
  while (x >= f.n) x = feistel_once(f, x);  // fewer than two passes on average
  return x;
}

RN_HD u64 feistel_position(const Feistel& f, u64 id) {
  u64 x = feistel_once_back(f, id);
  while (x >= f.n) x = feistel_once_back(f, x);
  return x;
}

}  // namespace rn

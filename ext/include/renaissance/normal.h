// Logarithm, sine, cosine and normals from + - * / sqrt alone: equal bits on host and device.
//
// Polynomials are the single-precision ones of the Cephes library (S. Moshier, 1989), which are
// relatively accurate near 1 (logarithm) and over an eighth of a turn (sine and cosine).
#pragma once
#include "philox.h"

namespace rn {

// Natural logarithm of a positive normal number; within 1.5 ulp.
RN_HD float log_of(float x) {
  u32 bits = bits_of(x);
  int exponent = static_cast<int>(bits >> 23) - 126;
  float m = float_of((bits & 0x007fffffu) | 0x3f000000u);  // [0.5, 1)
  if (m < 0.70710678f) {
    exponent -= 1;
    m = m + m - 1.0f;
  } else {
    m = m - 1.0f;
  }
  const float z = m * m;
  float y = 7.0376836292e-2f;
  y = y * m - 1.1514610310e-1f;
  y = y * m + 1.1676998740e-1f;
  y = y * m - 1.2420140846e-1f;
  y = y * m + 1.4249322787e-1f;
  y = y * m - 1.6668057665e-1f;
  y = y * m + 2.0000714765e-1f;
  y = y * m - 2.4999993993e-1f;
  y = y * m + 3.3333331174e-1f;
  y = y * m * z;
  const float e = static_cast<float>(exponent);
  y = y + e * -2.12194440e-4f;
  y = y - 0.5f * z;
  return (m + y) + e * 0.693359375f;
}

// Sine and cosine of t radians, at most an eighth of a turn either way.
RN_HD void sincos_octant(float t, float* sine, float* cosine) {
  const float z = t * t;
  float s = -1.9515295891e-4f;
  s = s * z + 8.3321608736e-3f;
  s = s * z - 1.6666654611e-1f;
  *sine = s * z * t + t;
  float c = 2.443315711809948e-5f;
  c = c * z - 1.388731625493765e-3f;
  c = c * z + 4.166664568298827e-2f;
  *cosine = c * z * z - 0.5f * z + 1.0f;
}

// Sine and cosine of 2 pi turn / 2^24, for turn in [0, 2^24).
RN_HD void sincos_turn(u32 turn, float* sine, float* cosine) {
  const u32 octant = turn >> 21;
  u32 rest = turn & 0x1fffffu;
  const bool odd = octant & 1u;
  if (odd) rest = 0x200000u - rest;
  const float t = static_cast<float>(rest) * (0.78539816339744831f / 2097152.0f);
  float s, c;
  sincos_octant(t, &s, &c);
  const float a = odd ? c : s;
  const float b = odd ? s : c;
  switch (octant >> 1) {
    case 0: *sine = a; *cosine = b; break;
    case 1: *sine = b; *cosine = -a; break;
    case 2: *sine = -a; *cosine = -b; break;
    default: *sine = -b; *cosine = a; break;
  }
}

// Two standard normals from one block (Box and Muller 1958), cosine first; |z| <= 5.77.
RN_HD void normal_pair(const Block& block, float* first, float* second) {
  const float radius = root(-2.0f * log_of(unit_above_zero(block.word[0])));
  float s, c;
  sincos_turn(block.word[1] >> 8, &s, &c);
  *first = radius * c;
  *second = radius * s;
}

// A standard normal cut at two standard deviations by rejection: draw number `index` of this seed.
// Each attempt has its own counter word, so a draw depends on nothing but (seed, index); a block
// holds two candidates, and 4.6 % of candidates are rejected.
RN_HD float trunc_normal(u64 seed, u64 index) {
  for (u32 attempt = 0;; ++attempt) {
    float first, second;
    normal_pair(philox(static_cast<u32>(index), static_cast<u32>(index >> 32), attempt, 0u,
                       static_cast<u32>(seed), static_cast<u32>(seed >> 32)),
                &first, &second);
    if (first >= -2.0f && first <= 2.0f) return first;
    if (second >= -2.0f && second <= 2.0f) return second;
  }
}

}  // namespace rn

// Mixup and CutMix of two samples, keyed by the pair.
//
// Samples 2k and 2k+1 of a batch are mixed with each other, both ways with one weight, so that the
// result depends on the two ids, the seed and the epoch alone and two samples are all it needs.
#pragma once
#include "sampling.h"

namespace rn {

struct MixSpec {
  float mixup;   // alpha of the weight's beta distribution; 0: no mixup
  float cutmix;  // the same for CutMix; with both, either has a chance of one half
  float p;       // probability that a pair is mixed at all
};

struct MixDraw {
  float weight;  // of the own sample; 1 - weight of the partner
  Box box;       // CutMix: what is exchanged; height 0 where pixels are blended
};

// log of a gamma variate (Marsaglia and Tsang 2000; for alpha < 1 boosted by a uniform's power).
RN_HD float draw_log_gamma(Draws& draws, float alpha) {
  const float shape = alpha < 1.0f ? alpha + 1.0f : alpha;
  const float d = shape - 1.0f / 3.0f;
  const float c = 1.0f / (3.0f * root(d));
  float log_gamma = 0.0f;
  for (;;) {
    const u32 first = next_word(draws), second = next_word(draws);
    float x, unused;
    normal_pair({{first, second, 0u, 0u}}, &x, &unused);
    const float v = (1.0f + c * x) * ((1.0f + c * x) * (1.0f + c * x));
    const float u = unit_above_zero(next_word(draws));
    if (v <= 0.0f) continue;
    const float log_v = log_of(v);
    if (log_of(u) >= 0.5f * x * x + d - d * v + d * log_v) continue;
    log_gamma = log_of(d) + log_v;
    break;
  }
  if (alpha < 1.0f) log_gamma = log_gamma + log_of(unit_above_zero(next_word(draws))) / alpha;
  return log_gamma;
}

// Beta(alpha, alpha): x / (x + y) of two gamma variates, by their logarithms.
RN_HD float draw_beta(Draws& draws, float alpha) {
  const float first = draw_log_gamma(draws, alpha);
  const float second = draw_log_gamma(draws, alpha);
  const float difference = first - second;
  if (difference > 80.0f) return 1.0f;
  if (difference < -80.0f) return 0.0f;
  return 1.0f / (1.0f + exp_of(-difference));
}

// `key` = hash(seed, "mix"). The order of the two ids matters, as it does in the batch.
RN_HD MixDraw draw_mix(const MixSpec& spec, u64 key, u32 epoch, u64 first_id, u64 second_id,
                       i32 height, i32 width) {
  Draws draws = draws_of({key, epoch, derive(first_id, second_id)}, 0u);
  const bool mixes = draw_chance(draws, spec.p);
  const bool coin = draw_chance(draws, 0.5f);
  if (!mixes) return {1.0f, {0, 0, 0, 0}};
  const bool cuts = spec.cutmix > 0.0f && (spec.mixup <= 0.0f || coin);
  const float weight = draw_beta(draws, cuts ? spec.cutmix : spec.mixup);
  if (!cuts) return {weight, {0, 0, 0, 0}};
  const i32 y = draw_below(draws, height), x = draw_below(draws, width);
  const float reach = 0.5f * root(1.0f - weight);
  const i32 half_y = static_cast<i32>(reach * static_cast<float>(height));
  const i32 half_x = static_cast<i32>(reach * static_cast<float>(width));
  const i32 top = y - half_y < 0 ? 0 : y - half_y, left = x - half_x < 0 ? 0 : x - half_x;
  const i32 bottom = y + half_y > height ? height : y + half_y;
  const i32 right = x + half_x > width ? width : x + half_x;
  const Box box = {top, left, bottom - top, right - left};
  const float area = static_cast<float>(height) * static_cast<float>(width);
  return {1.0f - static_cast<float>(box.height) * static_cast<float>(box.width) / area, box};
}

}  // namespace rn

// Region S: every number that moves between steps, and the one step that moves them.
//
// The host writes `lr` (and, in data-parallel runs, `row_offset` beside it) before a step; all else
// follows on the device. Whatever a kernel multiplies with is a float rounded once from double.
#pragma once
#include "portable.h"

namespace rn {

constexpr int MAX_ROWS = 16;    // update ranges of one plan
constexpr int MAX_INPUTS = 16;  // addresses of input slots

struct Scalars {
  // Written by the host before every step, in one copy of 16 bytes.
  double lr;
  i64 row_offset;  // where this rank's samples begin in the global batch (keys dropout)

  // The recipe, written at compile. A limit of 0 is off.
  double beta1, beta2, eps, trust_coefficient;
  double nominal;  // the loss weight of a full window
  double max_norm, clip_value;
  double ema_decay;
  double growth, backoff, min_scale, max_scale;
  u64 growth_interval, max_skipped;
  u32 is_scaling, ema_warmup;

  // State of training; part of a checkpoint.
  u64 attempted, applied, skipped;  // windows, updates, windows without update
  u64 good;                         // consecutive updates since the loss scale last moved
  u64 bad;                          // consecutive skips
  u64 averaged;                     // updates since the average began; its warm-up counts by them
  u64 micro;                        // attempted micro-steps; keys dropout
  u64 batches;                      // micro-steps of applied windows (num_batches_tracked)
  double loss_scale;

  // The window now gathered.
  double weight;  // sum of loss weights
  u64 window;     // micro-steps in it

  // What the last scalar step found.
  double norm;    // of the whole gradient, unscaled, before clipping
  i64 bad_chunk;  // first chunk with a non-finite partial sum, else -1
  u32 has_nan, stop;

  // Derived, as kernels read them.
  float seed_scale;  // gradient that backward starts from: loss_scale / nominal
  float unscale;     // nominal / (weight * loss_scale)
  float clip;        // factor, exactly 1 when the norm is within max_norm
  float clip_limit;  // clip_value, or infinity
  float bc1, bc2;    // 1 / (1 - beta^t)
  float ema_rate;    // 1 - d_t
  float b1, one_minus_b1, b2, one_minus_b2, eps_rounded;
  float row_lr[MAX_ROWS], row_lr_decay[MAX_ROWS], row_coupled[MAX_ROWS];

  // Per update range, written at compile.
  double factor[MAX_ROWS];   // of the learning rate
  double decay[MAX_ROWS];    // decoupled weight decay
  double coupled[MAX_ROWS];  // decay added to the gradient (l2; Adam; LARS)

  u64 seed;                // of the run; keys dropout
  u64 inputs[MAX_INPUTS];  // addresses of this step's input slots
};
static_assert(sizeof(Scalars) <= 4096, "region S is one page");

// x^n by square and multiply: equal on host and device, unlike pow.
RN_HD double power(double x, u64 n) {
  double result = 1.0;
  for (; n != 0; n >>= 1) {
    if (n & 1) result = result * x;
    x = x * x;
  }
  return result;
}

RN_HD double magnitude_of(double x) { return x < 0.0 ? -x : x; }

RN_HD bool is_skipped(const Scalars& s) { return s.has_nan != 0 || s.stop != 0; }

// Learning rate and decays of a range for the step about to be taken.
RN_HD void derive_row(Scalars& s, int row, double rate) {
  const double lr = rate * s.factor[row];
  s.row_lr[row] = static_cast<float>(lr);
  s.row_lr_decay[row] = static_cast<float>(lr * s.decay[row]);
  s.row_coupled[row] = static_cast<float>(s.coupled[row]);
}

RN_HD void derive_rows(Scalars& s) {
  for (int row = 0; row < MAX_ROWS; ++row) derive_row(s, row, s.lr);
}

// Constants of the recipe and the scale of the next backward; after every write of the recipe.
RN_HD void derive_recipe(Scalars& s) {
  s.b1 = static_cast<float>(s.beta1);
  s.one_minus_b1 = static_cast<float>(1.0 - s.beta1);
  s.b2 = static_cast<float>(s.beta2);
  s.one_minus_b2 = static_cast<float>(1.0 - s.beta2);
  s.eps_rounded = static_cast<float>(s.eps);
  s.clip_limit = s.clip_value > 0.0 ? static_cast<float>(s.clip_value) : float_of(0x7f800000u);
  s.seed_scale = static_cast<float>(s.loss_scale / s.nominal);
}

// One micro-step has been gathered; the first of a window starts its sums anew. Without a loss
// weight (null) the window counts as a full one. A stopped run counts nothing more.
RN_HD void count_micro_step(Scalars& s, bool is_first, const float* weight) {
  if (s.stop) return;
  const double before = is_first ? 0.0 : s.weight;
  s.weight = weight == nullptr ? s.nominal : before + static_cast<double>(*weight);
  s.window = (is_first ? 0 : s.window) + 1;
  s.micro += 1;
}

RN_HD void skip_step(Scalars& s, i64 bad_chunk) {
  s.has_nan = 1;
  s.bad_chunk = bad_chunk;
  s.skipped += 1;
  s.bad += 1;
  s.good = 0;
  if (s.is_scaling) {
    const double lower = s.loss_scale * s.backoff;
    s.loss_scale = lower > s.min_scale ? lower : s.min_scale;
  }
  if (s.max_skipped != 0 && s.bad >= s.max_skipped) s.stop = 1;
}

// What depends on numbers of updates alone, for the one that comes next. None of the three needs
// another, so that a device makes them side by side.
struct Coming {
  float bc1, bc2, ema_rate;
};

RN_HD float bias_correction(double beta, u64 t) {
  return static_cast<float>(1.0 / (1.0 - power(beta, t)));
}

RN_HD float ema_rate_of_next(const Scalars& s) {
  const double t = static_cast<double>(s.averaged + 1);
  const double early = (1.0 + t) / (10.0 + t);
  const double d = s.ema_warmup && early < s.ema_decay ? early : s.ema_decay;
  return static_cast<float>(1.0 - d);
}

RN_HD Coming coming_update(const Scalars& s) {
  const u64 t = s.applied + 1;
  return {bias_correction(s.beta1, t), bias_correction(s.beta2, t), ema_rate_of_next(s)};
}

RN_HD void count_update(Scalars& s, const Coming& coming) {
  s.has_nan = 0;
  s.bad_chunk = -1;
  s.applied += 1;
  s.averaged += 1;
  s.batches += s.window;
  s.bad = 0;
  s.good += 1;
  if (s.is_scaling && s.good >= s.growth_interval) {
    const double higher = s.loss_scale * s.growth;
    s.loss_scale = higher < s.max_scale ? higher : s.max_scale;
    s.good = 0;
  }
  s.bc1 = coming.bc1;
  s.bc2 = coming.bc2;
  s.ema_rate = coming.ema_rate;
}

// The decision of a window: `squares` is the sum of squares of G (a partial sum that is not finite
// makes it non-finite). A window without counted loss (weight 0) has gradient 0. A norm that does
// not fit float32 counts as non-finite, so that no element can overflow later. Rows are not derived.
RN_HD void decide(Scalars& s, double squares, i64 bad_chunk, const Coming& coming) {
  if (s.stop) {
    s.has_nan = 1;
    return;
  }
  s.attempted += 1;
  const double gathered = s.weight * s.loss_scale;
  s.unscale = s.weight == 0.0 ? 0.0f : static_cast<float>(s.nominal / gathered);
  s.norm = root(squares) * magnitude_of(static_cast<double>(s.unscale));
  s.clip = 1.0f;
  if (s.max_norm > 0.0 && s.norm > s.max_norm) s.clip = static_cast<float>(s.max_norm / s.norm);
  const bool is_sound = is_finite(gathered) && is_finite(s.unscale);
  if (is_sound && s.norm <= 3.4028234663852886e38) {
    count_update(s, coming);
  } else {
    skip_step(s, bad_chunk);
  }
  s.seed_scale = static_cast<float>(s.loss_scale / s.nominal);
}

// All of a window's end; what a stopped run gathers changes nothing.
RN_HD void scalar_step(Scalars& s, double squares, i64 bad_chunk) {
  const bool is_running = !s.stop;
  decide(s, squares, bad_chunk, coming_update(s));
  if (is_running) derive_rows(s);
}

}  // namespace rn

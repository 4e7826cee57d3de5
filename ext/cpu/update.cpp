// update_range and update_lars: the formulas of update.h over ranges.
#include <stdexcept>

#include "parallel.h"
#include "ranges.h"
#include "rounding.h"
#include "wide.h"

namespace rn {
namespace {

constexpr i64 BLOCK = 1024;       // elements between two visits of A; its part of W stays in cache
constexpr i64 STRETCH = 64;       // elements between two rounds of prefetching
constexpr i64 AHEAD = 64;         // how far ahead they are asked for
constexpr i64 GRAIN = 16 * 1024;  // fewest elements worth a thread

template <class Rule>
inline void step_block(float* __restrict w, const float* __restrict g, float* __restrict m,
                       float* __restrict v, i64 count, const Hyper& hyper) {
  const Hyper h = hyper;
  for (i64 i = 0; i < count; ++i) {
    float weight = w[i];
    float first = Rule::MOMENTS > 0 ? m[i] : 0.0f;
    float second = Rule::MOMENTS > 1 ? v[i] : 0.0f;
    Rule::step(weight, first, second, gradient_of(g[i], h), h);
    w[i] = weight;
    if (Rule::MOMENTS > 0) m[i] = first;
    if (Rule::MOMENTS > 1) v[i] = second;
  }
}

// Asks for the lines of one stretch of every array, array by array. The processor's own prefetcher
// stops at each page and follows seven streams badly. Past the end this asks in vain, no more.
template <class Rule>
inline void fetch(const Regions& at, i64 i) {
  constexpr i64 LINE = 64 / sizeof(float);
  for (i64 k = i; k < i + STRETCH; k += LINE) __builtin_prefetch(at.g + k);
  for (i64 k = i; k < i + STRETCH; k += LINE) __builtin_prefetch(at.w + k);
  if (Rule::MOMENTS > 0)
    for (i64 k = i; k < i + STRETCH; k += LINE) __builtin_prefetch(at.m + k);
  if (Rule::MOMENTS > 1)
    for (i64 k = i; k < i + STRETCH; k += LINE) __builtin_prefetch(at.v + k);
}

template <class Rule>
inline void step_stretch(const Regions& at, i64 i, i64 count, const Hyper& h) {
  float* m = Rule::MOMENTS > 0 ? at.m + i : nullptr;
  float* v = Rule::MOMENTS > 1 ? at.v + i : nullptr;
  step_block<Rule>(at.w + i, at.g + i, m, v, count, h);
}

template <class Rule>
void step_range(const Regions& at, i64 begin, i64 end, const Hyper& h) {
  run_wide([&] {
    for (i64 i = begin; i < end; i += BLOCK) {
      const i64 count = end - i < BLOCK ? end - i : BLOCK;
      i64 k = i;
      for (; k + STRETCH <= i + count; k += STRETCH) {
        fetch<Rule>(at, k + AHEAD);
        step_stretch<Rule>(at, k, STRETCH, h);  // a constant length: no remainders in the loop
      }
      step_stretch<Rule>(at, k, i + count - k, h);
      if (at.a != nullptr) round_block(at.w + i, at.a + i, at.a_type, count);
    }
  });
}

using Step = void (*)(const Regions&, i64, i64, const Hyper&);

Step step_of(const std::string& kernel) {
  if (kernel == "sgd") return step_range<Sgd>;
  if (kernel == "momentum") return step_range<Momentum>;
  if (kernel == "nesterov") return step_range<Nesterov>;
  if (kernel == "adam") return step_range<Adam>;
  if (kernel == "adamw") return step_range<AdamW>;
  if (kernel == "lars") return step_range<Lars>;
  if (kernel == "lars_nesterov") return step_range<LarsNesterov>;
  throw std::invalid_argument("no update kernel is called '" + kernel + "'");
}

}  // namespace

void update_range(const std::string& kernel, const Regions& at, i64 begin, i64 count,
                  const Scalars& s, int row, int threads) {
  const Step step = step_of(kernel);
  if (is_skipped(s)) return;
  const Hyper h = hyper_of(s, row);
  parallel_for(count, GRAIN, threads,
               [&](i64 first, i64 last) { step(at, begin + first, begin + last, h); });
}

void update_lars(const std::string& kernel, const Regions& at, const float* n, const Chunks& chunks,
                 const Scalars& s, int row, int threads) {
  const Step step = step_of(kernel);
  if (is_skipped(s)) return;
  parallel_for(chunks.count, GRAIN / CHUNK, threads, [&](i64 first, i64 last) {
    for (i64 c = chunks.first + first; c < chunks.first + last; ++c) {
      const TensorRow& tensor = chunks.rows[chunks.chunk[c].row];
      const Stretch stretch = stretch_of(tensor, chunks.chunk[c]);
      Hyper h = hyper_of(s, row);
      h.lr = h.lr * n[tensor.slot];
      step(at, stretch.begin, stretch.end, h);
    }
  });
}

}  // namespace rn

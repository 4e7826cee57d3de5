// Sums of squares over chunks and the trust ratios of LARS, in the order norms.h fixes.
#include "parallel.h"
#include "ranges.h"
#include "wide.h"

namespace rn {
namespace {

constexpr i64 GRAIN = 8;  // chunks

// Lanes are the inner loop: independent sums, which vectorise without changing any of them.
inline float lanes_of_chunk(const float* __restrict x, i64 count) {
  float lane[LANES] = {};
  i64 base = 0;
  for (; base + LANES <= count; base += LANES) {
    for (int l = 0; l < LANES; ++l) lane[l] = lane[l] + x[base + l] * x[base + l];
  }
  for (int l = 0; base + l < count; ++l) lane[l] = lane[l] + x[base + l] * x[base + l];
  return fold_lanes(lane);
}

}  // namespace

float chunk_squares(const float* x, i64 count) {
  float sum = 0.0f;
  run_wide([&] { sum = lanes_of_chunk(x, count); });
  return sum;
}

double fold_partials(const float* partials, i64 count) {
  double lane[LANES];
  for (int l = 0; l < LANES; ++l) lane[l] = partial_sum(partials, count, l);
  return fold_lanes(lane);
}

void check_range(const float* g, const Chunks& chunks, float* partials, int threads) {
  parallel_for(chunks.count, GRAIN, threads, [&](i64 first, i64 last) {
    for (i64 c = chunks.first + first; c < chunks.first + last; ++c) {
      const Stretch at = stretch_of(chunks.rows[chunks.chunk[c].row], chunks.chunk[c]);
      partials[c] = chunk_squares(g + at.begin, at.end - at.begin);
    }
  });
}

void squares_of_range(const Regions& at, const Chunks& chunks, float* w_partials, float* g_partials,
                      const Scalars& s, int row, int threads) {
  if (is_skipped(s)) return;
  const Hyper h = hyper_of(s, row);
  parallel_for(chunks.count, GRAIN, threads, [&](i64 first, i64 last) {
    float clipped[CHUNK];
    for (i64 c = chunks.first + first; c < chunks.first + last; ++c) {
      const Stretch part = stretch_of(chunks.rows[chunks.chunk[c].row], chunks.chunk[c]);
      const i64 count = part.end - part.begin;
      run_wide([&] {
        for (i64 i = 0; i < count; ++i) clipped[i] = gradient_of(at.g[part.begin + i], h);
      });
      w_partials[c] = chunk_squares(at.w + part.begin, count);
      g_partials[c] = chunk_squares(clipped, count);
    }
  });
}

void trust_ratios(float* n, const Chunks& chunks, const float* w_partials, const float* g_partials,
                  const Scalars& s, int row) {
  if (is_skipped(s)) return;
  const i64 end = chunks.first + chunks.count;
  for (i64 c = chunks.first; c < end;) {
    const TensorRow& tensor = chunks.rows[chunks.chunk[c].row];
    const i64 count = (tensor.count + CHUNK - 1) / CHUNK;
    n[tensor.slot] = trust_ratio(fold_partials(w_partials + c, count),
                                 fold_partials(g_partials + c, count), s, row);
    c += count;
  }
}

}  // namespace rn

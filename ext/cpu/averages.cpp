// Moving averages over rows of (source, target), and what evaluation with them needs.
#include "parallel.h"
#include "ranges.h"
#include "rounding.h"
#include "wide.h"

namespace rn {
namespace {

constexpr i64 GRAIN = 16 * 1024;  // elements

inline void average_block(float* __restrict e, const float* __restrict w, i64 count, float rate) {
  for (i64 i = 0; i < count; ++i) average(e[i], w[i], rate);
}

inline void swap_block(float* __restrict a, float* __restrict b, i64 count) {
  for (i64 i = 0; i < count; ++i) {
    const float held = a[i];
    a[i] = b[i];
    b[i] = held;
  }
}

float* source_of(const AverageRow& row) { return reinterpret_cast<float*>(row.source); }
float* target_of(const AverageRow& row) { return reinterpret_cast<float*>(row.target); }

}  // namespace

void average_ranges(const AverageRow* rows, i64 num_rows, const Scalars& s, int threads) {
  if (is_skipped(s)) return;
  for (i64 r = 0; r < num_rows; ++r) {
    float* e = target_of(rows[r]);
    const float* w = source_of(rows[r]);
    parallel_for(rows[r].count, GRAIN, threads, [&](i64 begin, i64 end) {
      run_wide([&] { average_block(e + begin, w + begin, end - begin, s.ema_rate); });
    });
  }
}

void exchange_ranges(const AverageRow* rows, i64 num_rows, int threads) {
  for (i64 r = 0; r < num_rows; ++r) {
    float* e = target_of(rows[r]);
    float* w = source_of(rows[r]);
    parallel_for(rows[r].count, GRAIN, threads, [&](i64 begin, i64 end) {
      run_wide([&] { swap_block(e + begin, w + begin, end - begin); });
    });
  }
}

void round_range(const float* w, u16* a, Dtype type, i64 count, int threads) {
  parallel_for(count, GRAIN, threads, [&](i64 begin, i64 end) {
    run_wide([&] { round_block(w + begin, a + begin, type, end - begin); });
  });
}

}  // namespace rn

// Host loops over ranges of the regions; addresses and lengths come from Python.
#pragma once
#include <string>

#include "renaissance/gather.h"
#include "renaissance/update.h"

namespace rn {

// Start addresses of the regions that an update touches; null where the plan has none.
struct Regions {
  float* w;
  const float* g;
  float* m;
  float* v;
  u16* a;        // 16-bit working copy
  Dtype a_type;  // BFLOAT16 or FLOAT16
};

// Chunks [first, first + count) of the tensors in `rows`.
struct Chunks {
  const TensorRow* rows;
  const Chunk* chunk;
  i64 first, count;
};

// A stretch that has a moving average: `source` in W or B, `target` in E, float32.
struct AverageRow {
  u64 source, target;
  i64 count;
};

// update.cpp -------------------------------------------------------------------------------------

// w, moments and A of [begin, begin + count); nothing when the step is skipped.
void update_range(const std::string& kernel, const Regions& at, i64 begin, i64 count,
                  const Scalars& s, int row, int threads);

// The same for LARS, chunk by chunk; eta of a tensor is n[slot].
void update_lars(const std::string& kernel, const Regions& at, const float* n, const Chunks& chunks,
                 const Scalars& s, int row, int threads);

// norms.cpp --------------------------------------------------------------------------------------

// The partial of x[0 .. count), count at most CHUNK.
float chunk_squares(const float* x, i64 count);

// The second phase over `count` partials.
double fold_partials(const float* partials, i64 count);

// Partials of w and of the unscaled, clipped gradient, at the chunks' own numbers.
void squares_of_range(const Regions& at, const Chunks& chunks, float* w_partials, float* g_partials,
                      const Scalars& s, int row, int threads);

// n[slot] of the tensors of these chunks.
void trust_ratios(float* n, const Chunks& chunks, const float* w_partials, const float* g_partials,
                  const Scalars& s, int row);

// Partials of G as it stands.
void check_range(const float* g, const Chunks& chunks, float* partials, int threads);

// gather.cpp -------------------------------------------------------------------------------------

// Converts every gradient into G (adding to what is there when `is_sum`) and leaves the partials.
void gather(const GatherRow* rows, const Chunk* chunks, i64 num_chunks, float* g, bool is_sum,
            float* partials, int threads);

// averages.cpp -----------------------------------------------------------------------------------

// The moving average of all rows; nothing when the step is skipped.
void average_ranges(const AverageRow* rows, i64 num_rows, const Scalars& s, int threads);

// Swaps source and target of all rows.
void exchange_ranges(const AverageRow* rows, i64 num_rows, int threads);

// a = w rounded to 16 bits.
void round_range(const float* w, u16* a, Dtype type, i64 count, int threads);

}  // namespace rn

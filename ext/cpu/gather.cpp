// Gradients of any strides and float format into G, with the partials of the finite check.
#include "parallel.h"
#include "ranges.h"
#include "rounding.h"
#include "wide.h"

namespace rn {
namespace {

constexpr i64 GRAIN = 8;  // chunks

void load_strided(const GatherRow& row, i64 begin, i64 count, float* out) {
  const void* source = reinterpret_cast<const void*>(row.source);
  const int fast = row.ndim - 1;
  i64 done = 0;
  while (done < count) {  // one run along the fastest dimension at a time
    const i64 start = source_index(row, begin + done);
    const i64 left = row.size[fast] - (begin + done) % row.size[fast];
    const i64 run = left < count - done ? left : count - done;
    for (i64 i = 0; i < run; ++i) {
      out[done + i] = load_float(source, row.dtype, start + i * row.stride[fast]);
    }
    done += run;
  }
}

// Elements [begin, begin + count) of the gradient as float32; where they already are float32 and
// dense, where they stand.
const float* load_chunk(const GatherRow& row, i64 begin, i64 count, float* buffer) {
  if (row.source != 0 && is_dense(row) && row.dtype == FLOAT32) {
    return reinterpret_cast<const float*>(row.source) + begin;
  }
  if (row.source == 0) {
    for (i64 i = 0; i < count; ++i) buffer[i] = 0.0f;
  } else if (is_dense(row)) {
    const u16* source = reinterpret_cast<const u16*>(row.source) + begin;
    run_wide([&] { widen_block(source, buffer, row.dtype, count); });
  } else {
    load_strided(row, begin, count, buffer);
  }
  return buffer;
}

inline void store_block(float* __restrict g, const float* __restrict x, i64 count, bool is_sum) {
  if (is_sum) {
    for (i64 i = 0; i < count; ++i) g[i] = g[i] + x[i];
  } else {
    for (i64 i = 0; i < count; ++i) g[i] = x[i];
  }
}

}  // namespace

void gather(const GatherRow* rows, const Chunk* chunks, i64 num_chunks, float* g, bool is_sum,
            float* partials, int threads) {
  parallel_for(num_chunks, GRAIN, threads, [&](i64 first, i64 last) {
    float buffer[CHUNK];
    for (i64 c = first; c < last; ++c) {
      const GatherRow& row = rows[chunks[c].row];
      const i64 begin = static_cast<i64>(chunks[c].number) * CHUNK;
      const i64 count = row.count - begin < CHUNK ? row.count - begin : CHUNK;
      const float* x = load_chunk(row, begin, count, buffer);
      float* out = g + row.offset + begin;
      run_wide([&] { store_block(out, x, count, is_sum); });
      partials[c] = chunk_squares(out, count);
    }
  });
}

}  // namespace rn

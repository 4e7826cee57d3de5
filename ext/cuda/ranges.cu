// Range operations on the device. Formulas, decisions and orders of summation stand in the portable
// headers; what is here is only how a launch covers a range.
//
// W, G, M, V and E are read and written 16 bytes at a time; A 8 bytes. Offsets are multiples of 128
// elements, so vectors are aligned; counts need not be multiples of 4.
#include "fold.h"
#include "renaissance/gather.h"
#include "renaissance/norms.h"
#include "renaissance/update.h"

using namespace rn;

namespace {

__device__ __forceinline__ u16 rounded(float x, i32 type) {
  return type == BFLOAT16 ? to_bfloat16(x) : to_float16(x);
}

__device__ __forceinline__ uint2 rounded(float4 x, i32 type) {
  const u32 a = rounded(x.x, type), b = rounded(x.y, type);
  const u32 c = rounded(x.z, type), d = rounded(x.w, type);
  return make_uint2(a | (b << 16), c | (d << 16));
}

// Four elements of a range in registers. They are loaded before it is known whether the step counts:
// waiting for has_nan first would put one latency of memory in front of another.
struct Four {
  float4 w, g, m, v;
};

template <class Rule>
__device__ __forceinline__ Four load_four(const float* w, const float* g, const float* m,
                                          const float* v, i64 at) {
  Four x;
  x.w = *reinterpret_cast<const float4*>(w + at);
  x.g = *reinterpret_cast<const float4*>(g + at);
  x.m = x.v = make_float4(0, 0, 0, 0);
  if (Rule::MOMENTS > 0) x.m = *reinterpret_cast<const float4*>(m + at);
  if (Rule::MOMENTS > 1) x.v = *reinterpret_cast<const float4*>(v + at);
  return x;
}

template <class Rule>
__device__ __forceinline__ void step_four(Four x, float* w, float* m, float* v, u16* a, i32 a_type,
                                          i64 at, const Hyper& h) {
  Rule::step(x.w.x, x.m.x, x.v.x, gradient_of(x.g.x, h), h);
  Rule::step(x.w.y, x.m.y, x.v.y, gradient_of(x.g.y, h), h);
  Rule::step(x.w.z, x.m.z, x.v.z, gradient_of(x.g.z, h), h);
  Rule::step(x.w.w, x.m.w, x.v.w, gradient_of(x.g.w, h), h);
  *reinterpret_cast<float4*>(w + at) = x.w;
  if (Rule::MOMENTS > 0) *reinterpret_cast<float4*>(m + at) = x.m;
  if (Rule::MOMENTS > 1) *reinterpret_cast<float4*>(v + at) = x.v;
  if (a != nullptr) *reinterpret_cast<uint2*>(a + at) = rounded(x.w, a_type);
}

template <class Rule>
__device__ __forceinline__ void step_tail(float* w, const float* g, float* m, float* v, u16* a,
                                          i32 a_type, i64 at, i64 end, const Hyper& h) {
  float spare = 0.0f;
  for (i64 i = at; i < end; ++i) {
    Rule::step(w[i], Rule::MOMENTS > 0 ? m[i] : spare, Rule::MOMENTS > 1 ? v[i] : spare,
               gradient_of(g[i], h), h);
    if (a != nullptr) a[i] = rounded(w[i], a_type);
  }
}

template <class Rule>
__device__ __forceinline__ void update(float* w, const float* g, float* m, float* v, u16* a,
                                       i32 a_type, i64 begin, i64 count, const Scalars* s,
                                       i32 row) {
  const i64 at = begin + 4 * (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x);
  const i64 end = begin + count;
  if (at + 4 <= end) {
    const Four x = load_four<Rule>(w, g, m, v, at);
    const Hyper h = hyper_of(*s, row);
    if (!s->has_nan) step_four<Rule>(x, w, m, v, a, a_type, at, h);
  } else if (at < end && !s->has_nan) {
    step_tail<Rule>(w, g, m, v, a, a_type, at, end, hyper_of(*s, row));
  }
}

// A block a chunk; the learning rate of a tensor carries its trust ratio.
template <class Rule>
__device__ __forceinline__ void update_trusted(float* w, const float* g, float* m, u16* a,
                                               i32 a_type, const float* n, const TensorRow* rows,
                                               const Chunk* chunks, const Scalars* s, i32 row) {
  if (s->has_nan) return;
  const Chunk chunk = chunks[blockIdx.x];
  const TensorRow tensor = rows[chunk.row];
  const Stretch part = stretch_of(tensor, chunk);
  Hyper h = hyper_of(*s, row);
  h.lr = h.lr * n[tensor.slot];
  for (i64 at = part.begin + 4 * threadIdx.x; at < part.end; at += 4 * blockDim.x) {
    if (at + 4 <= part.end) {
      const Four x = load_four<Rule>(w, g, m, nullptr, at);
      step_four<Rule>(x, w, m, nullptr, a, a_type, at, h);
    } else {
      step_tail<Rule>(w, g, m, nullptr, a, a_type, at, part.end, h);
    }
  }
}

__device__ __forceinline__ void copy_bytes(const u8* from, u8* to, i64 count) {
  const i64 at = 16 * (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x);
  if (at + 16 <= count) {
    *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(from + at);
  } else {
    for (i64 i = at; i < count; ++i) to[i] = from[i];
  }
}

}  // namespace

#define RN_UPDATE(name, Rule)                                                                    \
  extern "C" __global__ void update_##name(float* w, const float* g, float* m, float* v, u16* a, \
                                           i32 a_type, i64 begin, i64 count, const Scalars* s,   \
                                           i32 row) {                                            \
    update<Rule>(w, g, m, v, a, a_type, begin, count, s, row);                                   \
  }
RN_UPDATE(sgd, Sgd)
RN_UPDATE(momentum, Momentum)
RN_UPDATE(nesterov, Nesterov)
RN_UPDATE(adam, Adam)
RN_UPDATE(adamw, AdamW)

#define RN_UPDATE_TRUSTED(name, Rule)                                                            \
  extern "C" __global__ void update_##name(float* w, const float* g, float* m, u16* a,           \
                                           i32 a_type, const float* n, const TensorRow* rows,    \
                                           const Chunk* chunks, const Scalars* s, i32 row) {     \
    update_trusted<Rule>(w, g, m, a, a_type, n, rows, chunks, s, row);                           \
  }
RN_UPDATE_TRUSTED(lars, Lars)
RN_UPDATE_TRUSTED(lars_nesterov, LarsNesterov)

// Element i of a whole chunk of a dense gradient, sixteen loads in flight.
template <class Load>
__device__ __forceinline__ float gather_dense(Load load, float* out, bool is_sum) {
  float x[CHUNK / LANES];
#pragma unroll
  for (int k = 0; k < CHUNK / LANES; ++k) x[k] = load(k * LANES + threadIdx.x);
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < CHUNK / LANES; ++k) {
    const int i = k * LANES + threadIdx.x;
    if (is_sum) x[k] = out[i] + x[k];
    out[i] = x[k];
    sum = sum + x[k] * x[k];
  }
  return sum;
}

// A block of 256 a chunk: G = or += the gradient, and the chunk's partial of squares of what G then
// holds. The first block counts the micro-step.
extern "C" __global__ void gather(const GatherRow* rows, const Chunk* chunks, float* g, i32 is_sum,
                                  float* partials, Scalars* s, const float* weight) {
  __shared__ float lane[LANES];
  const Chunk chunk = chunks[blockIdx.x];
  const GatherRow& row = rows[chunk.row];
  const i64 begin = static_cast<i64>(chunk.number) * CHUNK;
  const i64 count = row.count - begin < CHUNK ? row.count - begin : CHUNK;
  float* out = g + row.offset + begin;
  float sum = 0.0f;
  if (count == CHUNK && row.source != 0 && is_dense(row) && row.dtype == FLOAT32) {
    const float* from = reinterpret_cast<const float*>(row.source) + begin;
    sum = gather_dense([=](int i) { return from[i]; }, out, is_sum);
  } else if (count == CHUNK && row.source != 0 && is_dense(row) && row.dtype == BFLOAT16) {
    const u16* from = reinterpret_cast<const u16*>(row.source) + begin;
    sum = gather_dense([=](int i) { return from_bfloat16(from[i]); }, out, is_sum);
  } else {
    for (i64 i = threadIdx.x; i < count; i += LANES) {
      float x = gradient_at(row, begin + i);
      if (is_sum) x = out[i] + x;
      out[i] = x;
      sum = sum + x * x;
    }
  }
  const float total = fold_block(lane, sum);
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = total;
    if (blockIdx.x == 0) count_micro_step(*s, !is_sum, weight);
  }
}

// A micro-step whose gradients came to G without `gather`, and which is not its window's last.
extern "C" __global__ void count_micro(Scalars* s, i32 is_first, const float* weight) {
  count_micro_step(*s, is_first != 0, weight);
}

extern "C" __global__ void check_range(const float* g, const TensorRow* rows, const Chunk* chunks,
                                       float* partials) {
  __shared__ float lane[LANES];
  const Chunk chunk = chunks[blockIdx.x];
  const Stretch part = stretch_of(rows[chunk.row], chunk);
  float sum = 0.0f;
  for (i64 i = part.begin + threadIdx.x; i < part.end; i += LANES) sum = sum + g[i] * g[i];
  const float total = fold_block(lane, sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

// Learning rates of steps to come: `count` doubles follow, those from `next` on are not used yet.
struct Rates {
  i64 next, count;
};

__device__ __forceinline__ double rate_of_step(const Scalars& s, const Rates* rates) {
  if (rates == nullptr || rates->next >= rates->count) return s.lr;
  return reinterpret_cast<const double*>(rates + 1)[rates->next];
}

// One block of LANES threads and three warps more: the second phase of the norm, and the decision of
// the window. S is worked on in shared memory. What does not need the norm is made beside its sum:
// the ranges' rates by a warp, the corrections of the coming update by a thread each.
//
// gathered: 0 when the last micro-step has been counted, else it is counted here with its loss
// weight (null: a full window); 1: it is the window's first; 2: a later one. sums: region R's rows
// window, last and epoch, `width` float64 each, or null: `last` = window, epoch += window unless the
// step is skipped, window = 0.
extern "C" __global__ void scalars(Scalars* s, const float* partials, i64 count, Rates* rates,
                                   i32 gathered, const float* weight, double* sums, i32 width) {
  __shared__ double lane[LANES];
  __shared__ Scalars mine;
  __shared__ Coming coming;
  __shared__ unsigned int first_bad;
  constexpr i32 WORDS = sizeof(Scalars) / sizeof(u64);
  const i32 thread = threadIdx.x, threads = blockDim.x;
  for (i32 k = thread; k < WORDS; k += threads)
    reinterpret_cast<u64*>(&mine)[k] = reinterpret_cast<const u64*>(s)[k];
  const bool has_sum = sums != nullptr && thread < width;
  const double sum = has_sum ? sums[thread] : 0.0;
  const double epoch = has_sum ? sums[2 * width + thread] : 0.0;
  double rate = 0.0;
  if (thread < LANES) {
    lane[thread] = partial_sum(partials, count, thread);
  } else if (thread < LANES + 32) {
    rate = rate_of_step(*s, rates);
  } else if (thread < LANES + 34) {
    const bool is_first = thread == LANES + 32;
    const float found = bias_correction(is_first ? s->beta1 : s->beta2, s->applied + 1);
    *(is_first ? &coming.bc1 : &coming.bc2) = found;
  } else if (thread == LANES + 64) {
    coming.ema_rate = ema_rate_of_next(*s);
    first_bad = 0xffffffffu;
  }
  __syncthreads();
  if (thread < 32) {
    const double squares = fold_warp(lane, thread);
    if (thread == 0) lane[0] = squares;
  } else if (thread >= LANES && thread < LANES + MAX_ROWS) {
    if (!mine.stop) derive_row(mine, thread - LANES, rate);
  } else if (thread == LANES + MAX_ROWS) {
    mine.lr = rate;
    if (rates != nullptr && rates->next < rates->count) rates->next += 1;
  }
  __syncthreads();
  if (!is_finite(lane[0])) {
    const i64 bad = thread < LANES ? first_bad_partial(partials, count, thread) : count;
    if (bad < count) atomicMin(&first_bad, static_cast<unsigned int>(bad));
    __syncthreads();
  }
  if (thread == 0) {
    if (gathered != 0) count_micro_step(mine, gathered == 1, weight);
    decide(mine, lane[0], first_bad == 0xffffffffu ? -1 : static_cast<i64>(first_bad), coming);
  }
  __syncthreads();
  for (i32 k = thread; k < WORDS; k += threads)
    reinterpret_cast<u64*>(s)[k] = reinterpret_cast<const u64*>(&mine)[k];
  if (!has_sum) return;
  sums[thread] = 0.0;
  sums[width + thread] = sum;
  if (!mine.has_nan) sums[2 * width + thread] = epoch + sum;
}

extern "C" __global__ void squares_of_range(const float* w, const float* g, const TensorRow* rows,
                                            const Chunk* chunks, i64 first, float* w_partials,
                                            float* g_partials, const Scalars* s, i32 row) {
  if (s->has_nan) return;
  __shared__ float lane[LANES];
  const i64 place = first + blockIdx.x;
  const Chunk chunk = chunks[place];
  const Stretch part = stretch_of(rows[chunk.row], chunk);
  const Hyper h = hyper_of(*s, row);
  float w_sum = 0.0f, g_sum = 0.0f;
  for (i64 i = part.begin + threadIdx.x; i < part.end; i += LANES) {
    const float clipped = gradient_of(g[i], h);
    w_sum = w_sum + w[i] * w[i];
    g_sum = g_sum + clipped * clipped;
  }
  const float w_total = fold_block(lane, w_sum);
  __syncthreads();
  const float g_total = fold_block(lane, g_sum);
  if (threadIdx.x != 0) return;
  w_partials[place] = w_total;
  g_partials[place] = g_total;
}

// A block a tensor.
extern "C" __global__ void trust_ratios(float* n, const TensorRow* rows, i32 first_row,
                                        const i64* first_chunk, const float* w_partials,
                                        const float* g_partials, const Scalars* s, i32 row) {
  if (s->has_nan) return;
  __shared__ double lane[LANES];
  const i32 place = first_row + blockIdx.x;
  const i64 begin = first_chunk[place], count = first_chunk[place + 1] - begin;
  const double w = fold_block(lane, partial_sum(w_partials + begin, count, threadIdx.x));
  __syncthreads();
  const double g = fold_block(lane, partial_sum(g_partials + begin, count, threadIdx.x));
  if (threadIdx.x == 0) n[rows[place].slot] = trust_ratio(w, g, *s, row);
}

// E over W and over the buffers, as one sequence of vectors.
extern "C" __global__ void average_ranges(const float* w, float* e, i64 count, const float* b,
                                          float* eb, i64 b_count, const Scalars* s) {
  if (s->has_nan) return;
  const float rate = s->ema_rate;
  const i64 at = 4 * (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x);
  const bool is_weight = at < count;
  const float* source = is_weight ? w + at : b + (at - count);
  float* target = is_weight ? e + at : eb + (at - count);
  if (at >= count + b_count) return;
  const float4 x = *reinterpret_cast<const float4*>(source);
  float4 y = *reinterpret_cast<const float4*>(target);
  average(y.x, x.x, rate);
  average(y.y, x.y, rate);
  average(y.z, x.z, rate);
  average(y.w, x.w, rate);
  *reinterpret_cast<float4*>(target) = y;
}

extern "C" __global__ void exchange_ranges(float* w, float* e, i64 count, float* b, float* eb,
                                           i64 b_count, u16* a, i32 a_type) {
  const i64 at = 4 * (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x);
  if (at >= count + b_count) return;
  const bool is_weight = at < count;
  float4* source = reinterpret_cast<float4*>(is_weight ? w + at : b + (at - count));
  float4* target = reinterpret_cast<float4*>(is_weight ? e + at : eb + (at - count));
  const float4 held = *source;
  *source = *target;
  *target = held;
  if (is_weight && a != nullptr) *reinterpret_cast<uint2*>(a + at) = rounded(*source, a_type);
}

extern "C" __global__ void copy_range(const u8* from, u8* to, i64 count) {
  copy_bytes(from, to, count);
}

extern "C" __global__ void restore_buffers(u8* b, const u8* shadow, i64 count, const Scalars* s) {
  if (s->has_nan) copy_bytes(shadow, b, count);
}

// The input slot that the micro-step counter names, to the graph's own input. S.inputs holds the
// addresses of x and y, slot by slot; all are aligned to 16 bytes.
extern "C" __global__ void load_input(const Scalars* s, i32 slots, u8* x, i64 x_bytes, u8* y,
                                      i64 y_bytes, i32 x_blocks) {
  const u64 slot = s->micro % static_cast<u64>(slots);
  const bool is_x = static_cast<i32>(blockIdx.x) < x_blocks;
  const u8* from = reinterpret_cast<const u8*>(s->inputs[2 * slot + (is_x ? 0 : 1)]);
  u8* to = is_x ? x : y;
  const i64 count = is_x ? x_bytes : y_bytes;
  const i32 block = is_x ? blockIdx.x : blockIdx.x - x_blocks;
  const i64 at = 16 * (static_cast<i64>(block) * blockDim.x + threadIdx.x);
  if (at + 16 <= count) {
    *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(from + at);
  } else {
    for (i64 i = at; i < count; ++i) to[i] = from[i];
  }
}

// The transform program on data that lives on the GPU: a few blocks make a sample of the batch.
//
// Every operation's draw is made by a thread of its own (its stream of words is its own), one thread
// puts them together, then all threads compute elements. Same bits as the workers.
#include "renaissance/convert.h"
#include "renaissance/pixels.h"

using namespace rn;

constexpr int MAX_SIDE = 1024;  // of a picture after its index maps; Python checks it

// Channel c of a pixel of one sample in memory, by layout (0: C, H, W; 1: H, W, C).
__device__ i64 place_in(i32 layout, i32 channels, i32 area, i32 pixel, i32 c) {
  return layout == 1 ? static_cast<i64>(pixel) * channels + c : static_cast<i64>(c) * area + pixel;
}

__device__ void store_as(void* out, i64 at, i32 dtype, float value) {
  if (dtype == FLOAT32)
    static_cast<float*>(out)[at] = value;
  else
    static_cast<u16*>(out)[at] = dtype == FLOAT16 ? to_float16(value) : to_bfloat16(value);
}

// pictures: uint8 (N, H, W, C) with strides in bytes. labels: int64 (N) or null.
// ids: int64, of an epoch or a batch. state: u64 {key, epoch, first, arrived}: sample k of the batch
// is ids[first + k], so that a replayed graph moves on when `first` or `epoch` changes in memory.
// end: of the samples, or 0. Given, the block that is the last to have read `first` moves it on to the
// next batch, past the end to 0; `arrived` is 0 before and after.
// program: header and operations. out: (batch, C, H, W) or (batch, H, W, C), `out_channels` of them,
// zeros beyond the program's. out_labels, out_ids: int64 (batch) or null. Launch: `parts` blocks a
// sample, one after the other; each draws for itself and makes every parts-th stretch of pixels.
extern "C" __global__ void augment_batch(const u8* pictures, i64 picture_stride, i64 row_stride,
                                         i64 pixel_stride, i64 channel_stride, const i64* labels,
                                         const i64* ids, u64* state, const u8* program,
                                         void* out, i64* out_labels, i64* out_ids, i32 dtype,
                                         i32 layout, i32 out_channels, i64 end, i32 parts) {
  __shared__ Operation ops[MAX_OPERATIONS];
  __shared__ Drawn drawn[MAX_OPERATIONS];
  __shared__ View view;
  __shared__ i32 rows[MAX_SIDE];
  __shared__ i32 columns[MAX_SIDE];
  const ProgramHeader header = *reinterpret_cast<const ProgramHeader*>(program);
  const i32 count = static_cast<i32>(header.count), thread = static_cast<i32>(threadIdx.x);
  const i32 threads = static_cast<i32>(blockDim.x);
  const i32 sample = static_cast<i32>(blockIdx.x) / parts, part = static_cast<i32>(blockIdx.x) % parts;
  const i64 id = ids[state[2] + sample];
  const SampleKey who = {state[0], static_cast<u32>(state[1]), static_cast<u64>(id)};
  const u32* words = reinterpret_cast<const u32*>(program + sizeof(ProgramHeader));
  for (i32 k = thread; k < count * static_cast<i32>(sizeof(Operation) / 4); k += threads)
    reinterpret_cast<u32*>(ops)[k] = words[k];
  __syncthreads();
  u64 arrived = 0;  // asked for here, looked at in the end: the answer takes its time
  if (end != 0 && thread == 0) {
    __threadfence();
    arrived = atomicAdd(state + 3, 1ull) + 1;
  }
  // A draw in each warp first: threads of one warp would take different paths one after the other.
  const i32 warps = threads / 32;
  for (i32 k = (thread % 32) * warps + thread / 32; k < count; k += threads) {
    i32 height = header.in_height, width = header.in_width;
    size_before(ops, k, &height, &width);
    drawn[k] = draw_operation(ops[k], who, height, width);
  }
  __syncthreads();
  if (thread == 0) {
    make_view(view, ops, count, drawn, header.in_height, header.in_width);
    if (out_labels && part == 0) out_labels[sample] = labels[id];
    if (out_ids && part == 0) out_ids[sample] = id;
  }
  __syncthreads();
  for (i32 k = thread; k < view.height; k += threads) rows[k] = resolve(view.rows, view.row_steps, k);
  for (i32 k = thread; k < view.width; k += threads)
    columns[k] = resolve(view.columns, view.column_steps, k);
  __syncthreads();
  const Source source = {pictures + id * picture_stride, row_stride, pixel_stride, channel_stride};
  const Maps maps = {rows, columns};
  const i32 channels = static_cast<i32>(header.channels);
  const i32 height = header.out_height, width = header.out_width, area = height * width;
  const i64 first = static_cast<i64>(sample) * out_channels * area;
  for (i32 pixel = part * threads + thread; pixel < area; pixel += parts * threads) {
    const i32 y = pixel / width, x = pixel - y * width;
    for (i32 c = 0; c < out_channels; ++c) {
      const float value = c < channels ? value_at(view, ops, who, source, maps, y, x, c) : 0.0f;
      store_as(out, first + place_in(layout, out_channels, area, pixel, c), dtype, value);
    }
  }
  if (arrived != gridDim.x) return;
  const u64 next = state[2] + gridDim.x / parts;
  state[2] = next < static_cast<u64>(end) ? next : 0;
  state[3] = 0;
}

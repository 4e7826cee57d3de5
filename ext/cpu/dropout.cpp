// Dropout and noise on the host; what is drawn is defined in renaissance/dropout.h.
#include "renaissance/dropout.h"

#include <pybind11/pybind11.h>

#include <algorithm>

#include "bind.h"
#include "keyed.h"
#include "parallel.h"
#include "wide.h"

namespace rn {
namespace {

namespace py = pybind11;

constexpr i64 QUADS = 64;  // whose words and values are under way together

template <i32 D>
void get(const void* x, i64 first, i64 count, float* values) {
  for (i64 i = 0; i < count; ++i) values[i] = load_float(x, D, first + i);
}

template <i32 D>
void put(void* y, i64 first, i64 count, const float* values) {
  if (D == FLOAT32) {
    std::copy(values, values + count, static_cast<float*>(y) + first);
    return;
  }
  u16* to = static_cast<u16*>(y) + first;
  for (i64 i = 0; i < count; ++i)
    to[i] = D == BFLOAT16 ? to_bfloat16(values[i]) : to_float16(values[i]);
}

// The values of a row-major sample, which lie side by side; `at` and `count` are elements.
template <i32 D, class Change>
void change_run(const void* x, void* y, i64 at, i64 count, const Block* words,
                const Change& change) {
  float values[4 * QUADS] = {};
  run_wide([&] {
    if (x) get<D>(x, at, count, values);
    for (i64 q = 0; 4 * q < count; ++q) change(words[q], values + 4 * q);
    put<D>(y, at, count, values);
  });
}

template <i32 D, class Change>
void change_apart(const void* x, void* y, i64 start, const Quad* quads, i64 count,
                  const Block* words, const Change& change) {
  for (i64 q = 0; q < count; ++q) {
    float values[4] = {};
    const Quad& at = quads[q];
    for (int k = 0; x && k < at.size; ++k) values[k] = load_float(x, D, start + at.at[k]);
    change(words[q], values);
    for (int k = 0; k < at.size; ++k) put<D>(y, start + at.at[k], 1, values + k);
  }
}

// y = change(words, x) quad by quad; without x the values are zero.
template <i32 D, class Change>
void by_quads(const void* x, void* y, i64 rows, const SampleLayout& layout, const LayerDraw& draw,
              int threads, const Change& change) {
  const i64 quads = layout.quads();
  parallel_for(rows * quads, 1 << 11, threads, [&](i64 begin, i64 end) {
    Quad at[QUADS];
    u64 numbers[QUADS];
    Block words[QUADS];
    for (i64 unit = begin; unit < end;) {
      const i64 row = unit / quads, first = unit - row * quads, start = row * layout.inner;
      const i64 count = std::min({QUADS, quads - first, end - unit});
      for (i64 q = 0; q < count; ++q) {
        if (layout.channels > 1) at[q] = quad_of(layout, first + q);
        numbers[q] = static_cast<u64>(layout.channels > 1 ? at[q].quad : first + q);
      }
      quad_blocks(draw.key, numbers, static_cast<u64>(draw.row_offset + row), count, words);
      if (layout.channels > 1) {
        change_apart<D>(x, y, start, at, count, words, change);
      } else {
        const i64 left = std::min(4 * count, layout.inner - 4 * first);
        change_run<D>(x, y, start + 4 * first, left, words, change);
      }
      unit += count;
    }
  });
}

template <class Change>
void by_type(u64 x, u64 y, i64 rows, i64 inner, i64 channels, i32 dtype, u64 scalars, u64 layer,
             int threads, const Change& change) {
  const SampleLayout layout{inner, channels, inner / channels};
  const LayerDraw draw = layer_draw(*reinterpret_cast<const Scalars*>(scalars), layer);
  const void* from = reinterpret_cast<const void*>(x);
  void* to = reinterpret_cast<void*>(y);
  if (dtype == FLOAT32) by_quads<FLOAT32>(from, to, rows, layout, draw, threads, change);
  if (dtype == BFLOAT16) by_quads<BFLOAT16>(from, to, rows, layout, draw, threads, change);
  if (dtype == FLOAT16) by_quads<FLOAT16>(from, to, rows, layout, draw, threads, change);
}

void dropout(u64 x, u64 y, i64 rows, i64 inner, i64 channels, i32 dtype, u64 scalars, u64 layer,
             u32 threshold, float scale, int threads) {
  by_type(x, y, rows, inner, channels, dtype, scalars, layer, threads, Drop{threshold, scale});
}

void noise(u64 y, i64 rows, i64 inner, i64 channels, i32 dtype, u64 scalars, u64 layer,
           int threads) {
  by_type(0, y, rows, inner, channels, dtype, scalars, layer, threads, Gauss{});
}

}  // namespace

void bind_dropout(py::module_& m) {
  m.def("dropout", &dropout, py::arg("x"), py::arg("y"), py::arg("rows"), py::arg("inner"),
        py::arg("channels"), py::arg("dtype"), py::arg("scalars"), py::arg("layer"),
        py::arg("threshold"), py::arg("scale"), py::arg("threads"),
        py::call_guard<py::gil_scoped_release>(),
        "y = x times 0 or `scale`, by the mask of (S.seed, S.micro, layer, place).");
  m.def("noise", &noise, py::arg("y"), py::arg("rows"), py::arg("inner"), py::arg("channels"),
        py::arg("dtype"), py::arg("scalars"), py::arg("layer"), py::arg("threads"),
        py::call_guard<py::gil_scoped_release>(),
        "y = standard normals of (S.seed, S.micro, layer, place).");
}

}  // namespace rn

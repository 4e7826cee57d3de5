// Dropout on the host; masks are defined in renaissance/dropout.h.
#include "renaissance/dropout.h"

#include <pybind11/pybind11.h>

#include "bind.h"
#include "parallel.h"

namespace rn {
namespace {

namespace py = pybind11;

template <class Load, class Store>
void apply(const DropoutDraw& draw, const DropoutLayout& layout, int threads, Load load,
           Store store) {
  parallel_for(layout.count, 1 << 13, threads, [&](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) {
      const float factor = dropout_factor(draw, layout, i);
      store(i, factor == 0.0f ? 0.0f : load(i) * factor);
    }
  });
}

void dropout(u64 x, u64 y, i64 count, i64 inner, i64 channels, i32 dtype, u64 scalars, u64 layer,
             u32 threshold, float scale, int threads) {
  const DropoutLayout layout{count, inner, channels, inner / channels};
  const Scalars& s = *reinterpret_cast<const Scalars*>(scalars);
  const DropoutDraw draw = dropout_draw(s, layer, threshold, scale);
  const void* source = reinterpret_cast<const void*>(x);
  const auto load = [=](i64 i) { return load_float(source, dtype, i); };
  if (dtype == FLOAT32) {
    float* out = reinterpret_cast<float*>(y);
    apply(draw, layout, threads, load, [=](i64 i, float v) { out[i] = v; });
  } else {
    u16* out = reinterpret_cast<u16*>(y);
    apply(draw, layout, threads, load, [=](i64 i, float v) {
      out[i] = dtype == BFLOAT16 ? to_bfloat16(v) : to_float16(v);
    });
  }
}

}  // namespace

void bind_dropout(py::module_& m) {
  m.def("dropout", &dropout, py::arg("x"), py::arg("y"), py::arg("count"), py::arg("inner"),
        py::arg("channels"), py::arg("dtype"), py::arg("scalars"), py::arg("layer"),
        py::arg("threshold"), py::arg("scale"), py::arg("threads"),
        py::call_guard<py::gil_scoped_release>(),
        "y = x times 0 or `scale`, by the mask of (S.seed, S.micro, layer, place).");
}

}  // namespace rn

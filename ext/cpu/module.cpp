// renaissance._native: addresses, lengths and scalars in; nothing of Python, torch or CUDA beyond.
//
// Each room binds itself: random.cpp, ranges.cpp, ...
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <string>

#include "bind.h"

namespace rn {
const std::map<std::string, std::string>& texts();
}

PYBIND11_MODULE(_native, m) {
  m.doc() = "Range kernels, random numbers and pixel operations of Renaissance.";
  m.def("texts", &rn::texts, "Source texts of the portable headers and CUDA kernels, by file name.");
  rn::bind_draws(m);
  rn::bind_program(m);
  rn::bind_loader(m);
  rn::bind_random(m);
  rn::bind_ranges(m);
  rn::bind_dropout(m);
}

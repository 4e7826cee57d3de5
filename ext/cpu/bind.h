// One function per room of the native module; module.cpp calls them all.
#pragma once
#include <pybind11/pybind11.h>

namespace rn {
void bind_draws(pybind11::module_& m);
void bind_program(pybind11::module_& m);
void bind_loader(pybind11::module_& m);
void bind_random(pybind11::module_& m);
void bind_dropout(pybind11::module_& m);
void bind_ranges(pybind11::module_& m);
}  // namespace rn

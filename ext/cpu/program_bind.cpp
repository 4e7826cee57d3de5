// Transform programs for Python: compiling is renaissance/data/program.py's, running is here.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <string>

#include "bind.h"
#include "program.h"

namespace rn {
namespace {

namespace py = pybind11;

std::map<std::string, u32> operation_kinds() {
  return {{"pad", OP_PAD},
          {"pad_to", OP_PAD_TO},
          {"random_crop", OP_RANDOM_CROP},
          {"center_crop", OP_CENTER_CROP},
          {"flip_x", OP_FLIP_X},
          {"flip_y", OP_FLIP_Y},
          {"affine", OP_AFFINE},
          {"resize", OP_RESIZE},
          {"resized_crop", OP_RESIZED_CROP},
          {"jitter", OP_JITTER},
          {"grayscale", OP_GRAYSCALE},
          {"autocontrast", OP_AUTOCONTRAST},
          {"blur", OP_BLUR},
          {"trivial", OP_TRIVIAL},
          {"randaugment", OP_RANDAUGMENT},
          {"normalize", OP_NORMALIZE},
          {"erase", OP_ERASE},
          {"cutout", OP_CUTOUT}};
}

// Pictures of one size in one array: strides in bytes from picture, row, pixel, channel on.
struct Pictures {
  u64 address;
  int height, width, channels;
  i64 strides[4];
};

Pictures pictures(u64 address, const std::vector<i64>& shape, const std::vector<i64>& strides) {
  if (shape.size() != 3 || strides.size() != 4)
    throw std::invalid_argument("pictures: shape (H, W, C) and strides (N, H, W, C) are needed");
  Pictures found = {address, int(shape[0]), int(shape[1]), int(shape[2]), {0, 0, 0, 0}};
  for (int k = 0; k < 4; ++k) found.strides[k] = strides[k];
  return found;
}

// Runs the program on the pictures at `ids`, one after the other, on this thread.
void run(const Program& program, const Pictures& from, u64 ids, i64 count, u64 key, u32 epoch,
         u64 out, const OutputSpec& spec, Scratch* scratch) {
  const i64* id = reinterpret_cast<const i64*>(ids);
  const std::size_t bytes = program.output_bytes(spec);
  for (i64 k = 0; k < count; ++k) {
    const u8* at = reinterpret_cast<const u8*>(from.address) + id[k] * from.strides[0];
    const Image image = {at, from.height, from.width, from.channels,
                         from.strides[1], from.strides[2], from.strides[3]};
    const SampleKey who = {key, epoch, static_cast<u64>(id[k])};
    char* to = reinterpret_cast<char*>(out) + k * bytes;
    if (scratch)
      program.run(image, who, to, spec, *scratch);
    else
      program.run_by_element(image, who, to, spec);
  }
}

}  // namespace

void bind_program(py::module_& m) {
  m.attr("OPERATION_KINDS") = operation_kinds();
  m.attr("OPERATION_BYTES") = sizeof(Operation);
  m.def("use_simd", &use_simd, py::arg("wanted"),
        "Vector kernels for pixels where the machine has them, or portable ones; the same bits. "
        "Returns whether vector kernels are in use now.");
  py::class_<Scratch>(m, "Scratch", "Memory of one thread that runs programs; grows, never shrinks.")
      .def(py::init<>())
      .def_property_readonly("capacity", &Scratch::capacity);
  py::class_<Program>(m, "Program", "A compiled chain of transforms.")
      .def(py::init([](const py::bytes& text) { return Program(std::string(text)); }), py::arg("text"))
      .def_property_readonly("channels", &Program::channels)
      .def_property_readonly("height", &Program::height)
      .def_property_readonly("width", &Program::width)
      .def(
          "run",
          [](const Program& program, u64 address, const std::vector<i64>& shape,
             const std::vector<i64>& strides, u64 ids, i64 count, u64 key, u32 epoch, u64 out,
             i32 dtype, i32 layout, int channels, Scratch* scratch) {
            const Pictures from = pictures(address, shape, strides);
            py::gil_scoped_release free;
            run(program, from, ids, count, key, epoch, out, {dtype, layout, channels}, scratch);
          },
          py::arg("pictures"), py::arg("shape"), py::arg("strides"), py::arg("ids"),
          py::arg("count"), py::arg("key"), py::arg("epoch"), py::arg("out"), py::arg("dtype"),
          py::arg("layout"), py::arg("channels"), py::arg("scratch"),
          "Pictures (H, W, C) uint8 at int64 ids, on the calling thread; out holds count samples. "
          "Without scratch: element by element, as a GPU does (programs of a single pass).")
      .def(
          "crop_of",
          [](const Program& program, int height, int width, u64 key, u32 epoch, u64 id) {
            const Box box = program.crop_of(height, width, {key, epoch, id});
            return std::make_tuple(box.top, box.left, box.height, box.width);
          },
          py::arg("height"), py::arg("width"), py::arg("key"), py::arg("epoch"), py::arg("id"),
          "(top, left, height, width) of the source pixels this sample reads.");
  py::register_exception<PictureError>(m, "PictureError", PyExc_ValueError);
}

}  // namespace rn

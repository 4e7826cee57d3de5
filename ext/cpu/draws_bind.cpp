// What transforms draw, as numbers: for tests, for documentation, and for mixing batches.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "bind.h"
#include "mix.h"
#include "renaissance/color.h"

namespace rn {
namespace {

namespace py = pybind11;

std::vector<float> numbers(const Box& box) {
  return {float(box.top), float(box.left), float(box.height), float(box.width)};
}

std::vector<float> automatic(const Operation& op, const SampleKey& who, int height, int width) {
  std::vector<float> found;
  const int choices = op.kind == OP_TRIVIAL ? 1 : op.size[1];
  for (int k = 0; k < choices; ++k) {
    const AutoDraw drawn = draw_auto(op, who, k, height, width);
    found.push_back(static_cast<float>(drawn.kind));
    found.push_back(drawn.magnitude);
  }
  return found;
}

std::vector<float> jitter(const Operation& op, const SampleKey& who) {
  const JitterDraw drawn = draw_jitter(op, who);
  std::vector<float> found(drawn.order, drawn.order + 4);
  found.insert(found.end(), drawn.factor, drawn.factor + 4);
  return found;
}

// The parameters of one operation, in the order that renaissance/data/draws.py names them.
std::vector<float> parameters(const Operation& op, const SampleKey& who, int height, int width) {
  switch (op.kind) {
    case OP_RANDOM_CROP: return numbers(draw_crop(op, who, height, width));
    case OP_RESIZED_CROP: return numbers(draw_resized_crop(op, who, height, width));
    case OP_ERASE: return numbers(draw_erase(op, who, height, width));
    case OP_CUTOUT: return numbers(draw_cutout(op, who, height, width));
    case OP_FLIP_X:
    case OP_FLIP_Y:
    case OP_GRAYSCALE:
    case OP_AUTOCONTRAST: return {draw_flip(op, who) ? 1.0f : 0.0f};
    case OP_AFFINE: {
      const AffineDraw d = draw_affine(op, who, height, width);
      return {d.angle, d.shift_x, d.shift_y, d.scale, d.shear_x, d.shear_y};
    }
    case OP_JITTER: return jitter(op, who);
    case OP_BLUR: return {draw_sigma(op, who)};
    case OP_TRIVIAL:
    case OP_RANDAUGMENT: return automatic(op, who, height, width);
    default: throw std::invalid_argument("this operation draws nothing");
  }
}

Operation operation(const std::string& bytes) {
  if (bytes.size() != sizeof(Operation)) throw std::invalid_argument("operation: wrong length");
  Operation op;
  std::memcpy(&op, bytes.data(), sizeof op);
  return op;
}

}  // namespace

void bind_draws(py::module_& m) {
  m.def(
      "draw_parameters",
      [](const py::bytes& text, u64 key, u32 epoch, u64 first_id, i64 count, int height, int width) {
        const Operation op = operation(text);
        std::vector<std::vector<float>> found;
        for (i64 k = 0; k < count; ++k)
          found.push_back(parameters(op, {key, epoch, first_id + k}, height, width));
        return found;
      },
      py::arg("operation"), py::arg("key"), py::arg("epoch"), py::arg("first_id"),
      py::arg("count"), py::arg("height"), py::arg("width"),
      "What one operation draws for samples first_id, first_id + 1, ...");
  m.def(
      "draw_mix",
      [](float mixup, float cutmix, float p, u64 key, u32 epoch, u64 first, u64 second, int height,
         int width) {
        const MixDraw d = draw_mix({mixup, cutmix, p}, key, epoch, first, second, height, width);
        return std::make_tuple(d.weight, d.box.top, d.box.left, d.box.height, d.box.width);
      },
      py::arg("mixup"), py::arg("cutmix"), py::arg("p"), py::arg("key"), py::arg("epoch"),
      py::arg("first"), py::arg("second"), py::arg("height"), py::arg("width"),
      "(weight, top, left, height, width) of the pair of samples (first, second).");
  m.def(
      "mix_pair",
      [](float weight, int top, int left, int box_height, int box_width, i32 dtype, i32 layout,
         int channels, int height, int width, u64 first, u64 second) {
        const MixDraw drawn = {weight, {top, left, box_height, box_width}};
        mix_pair(drawn, {dtype, layout, channels}, height, width, reinterpret_cast<void*>(first),
                 reinterpret_cast<void*>(second));
      },
      py::arg("weight"), py::arg("top"), py::arg("left"), py::arg("box_height"),
      py::arg("box_width"), py::arg("dtype"), py::arg("layout"), py::arg("channels"),
      py::arg("height"), py::arg("width"), py::arg("first"), py::arg("second"),
      py::call_guard<py::gil_scoped_release>(), "Mixes two samples in place, as drawn.");
}

}  // namespace rn

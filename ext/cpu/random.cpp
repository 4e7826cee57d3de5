// Fills and permutations for the host; the numbers are defined in the portable headers.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>

#include "bind.h"
#include "keyed.h"
#include "order.h"
#include "parallel.h"
#include "renaissance/normal.h"

namespace rn {
namespace {

namespace py = pybind11;

// FNV-1a over the text, mixed into the key: a name (of a parameter, say) as one word.
u64 derive_text(u64 key, const std::string& text) {
  u64 h = 0xCBF29CE484222325ull;
  for (const char c : text) h = (h ^ static_cast<u8>(c)) * 0x100000001B3ull;
  return derive(derive(key, h), text.size());
}

void fill_uniform(u64 out, i64 count, u64 seed, u64 offset, int threads) {
  float* x = reinterpret_cast<float*>(out);
  parallel_for(count, 1 << 14, threads, [&](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) x[i] = unit(philox(seed, offset + i).word[0]);
  });
}

void fill_normal(u64 out, i64 count, u64 seed, u64 offset, int threads) {
  float* x = reinterpret_cast<float*>(out);
  const i64 pairs = (count + 1) / 2;
  parallel_for(pairs, 1 << 13, threads, [&](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) {
      float a, b;
      normal_pair(philox(seed, offset + i), &a, &b);
      x[2 * i] = a;
      if (2 * i + 1 < count) x[2 * i + 1] = b;
    }
  });
}

void fill_trunc_normal(u64 out, i64 count, u64 seed, u64 offset, int threads) {
  float* x = reinterpret_cast<float*>(out);
  parallel_for(count, 1 << 13, threads, [&](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) x[i] = trunc_normal(seed, offset + i);
  });
}

void fill_permutation(u64 out, u64 n, u64 key) {
  if (n <= SHUFFLE_LIMIT) {
    shuffle(key, reinterpret_cast<i64*>(out), n);
    return;
  }
  const Feistel f = feistel(key, n);
  for (u64 i = 0; i < n; ++i) reinterpret_cast<i64*>(out)[i] = static_cast<i64>(feistel_at(f, i));
}

void fill_feistel(u64 out, u64 n, u64 key, u64 start, i64 step, u64 count) {
  const Feistel f = feistel(key, n);
  for (u64 i = 0; i < count; ++i)
    reinterpret_cast<i64*>(out)[i] = static_cast<i64>(feistel_at(f, start + i * step));
}

using Ids = py::array_t<u64, py::array::c_style | py::array::forcecast>;

py::array_t<u32> keyed_words(u64 key, u32 stream, u32 when, const Ids& ids) {
  static_assert(sizeof(Block) == 4 * sizeof(u32), "a block is its words");
  py::array_t<u32> out({ids.size(), py::ssize_t(4)});
  keyed_blocks(key, stream, when, ids.data(), ids.size(),
               reinterpret_cast<Block*>(out.mutable_data()));
  return out;
}

}  // namespace

void bind_random(py::module_& m) {
  const auto nogil = py::call_guard<py::gil_scoped_release>();
  m.attr("SHUFFLE_LIMIT") = SHUFFLE_LIMIT;
  m.def(
      "philox",
      [](u32 c0, u32 c1, u32 c2, u32 c3, u32 k0, u32 k1) {
        const Block b = philox(c0, c1, c2, c3, k0, k1);
        return std::make_tuple(b.word[0], b.word[1], b.word[2], b.word[3]);
      },
      py::arg("c0"), py::arg("c1"), py::arg("c2"), py::arg("c3"), py::arg("k0"), py::arg("k1"),
      "One Philox4x32-10 block: four counter words, two key words.");
  m.def("keyed_words", &keyed_words, py::arg("key"), py::arg("stream"), py::arg("when"),
        py::arg("ids"), "(n, 4) words: the block that each id draws.");
  m.def("derive", &derive, py::arg("key"), py::arg("word"), "Child key by hashing.");
  m.def("derive_text", &derive_text, py::arg("key"), py::arg("text"), "Child key by a name.");
  m.def("purpose_key", &purpose_key, py::arg("seed"), py::arg("purpose"));
  m.def("below_unbiased", &below_unbiased, py::arg("key"), py::arg("index"), py::arg("n"),
        "Draw number `index` of this key in [0, n), exactly uniform; n = 0 stands for 2^64.");
  m.def("fill_uniform", &fill_uniform, py::arg("out"), py::arg("count"), py::arg("seed"),
        py::arg("offset"), py::arg("threads"), nogil);
  m.def("fill_normal", &fill_normal, py::arg("out"), py::arg("count"), py::arg("seed"),
        py::arg("offset"), py::arg("threads"), nogil);
  m.def("fill_trunc_normal", &fill_trunc_normal, py::arg("out"), py::arg("count"), py::arg("seed"),
        py::arg("offset"), py::arg("threads"), nogil,
        "Standard normals cut at two standard deviations; element i is draw offset + i.");
  m.def("fill_permutation", &fill_permutation, py::arg("out"), py::arg("n"), py::arg("key"), nogil);
  m.def("fill_feistel", &fill_feistel, py::arg("out"), py::arg("n"), py::arg("key"),
        py::arg("start"), py::arg("step"), py::arg("count"), nogil,
        "ids at positions start, start + step, ... of the Feistel permutation, int64.");
  m.def("feistel_position", [](u64 n, u64 key, u64 id) {
    return feistel_position(feistel(key, n), id);
  });
}

}  // namespace rn

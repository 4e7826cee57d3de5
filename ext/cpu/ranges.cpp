// Binds the range operations: what renaissance/update calls, with addresses as integers.
#include "ranges.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include <cstddef>
#include <map>
#include <tuple>

#include "bind.h"
#include "parallel.h"
#include "wide.h"

namespace rn {

std::atomic<bool> is_wide{has_avx2()};

namespace {

namespace py = pybind11;

template <class T>
T* at(u64 address) {
  return reinterpret_cast<T*>(address);
}

Regions regions_of(u64 w, u64 g, u64 m, u64 v, u64 a, int a_type) {
  return {at<float>(w), at<const float>(g), at<float>(m),
          at<float>(v), at<u16>(a),         static_cast<Dtype>(a_type)};
}

Chunks chunks_of(u64 rows, u64 chunks, i64 first, i64 count) {
  return {at<const TensorRow>(rows), at<const Chunk>(chunks), first, count};
}

using Field = std::tuple<size_t, std::string, int>;  // offset in bytes, NumPy type, count

std::map<std::string, Field> scalars_layout() {
#define RN_FIELD(name, type, count) {#name, {offsetof(Scalars, name), type, count}}
  return {RN_FIELD(lr, "f8", 1),
          RN_FIELD(row_offset, "i8", 1),
          RN_FIELD(beta1, "f8", 1),
          RN_FIELD(beta2, "f8", 1),
          RN_FIELD(eps, "f8", 1),
          RN_FIELD(trust_coefficient, "f8", 1),
          RN_FIELD(nominal, "f8", 1),
          RN_FIELD(max_norm, "f8", 1),
          RN_FIELD(clip_value, "f8", 1),
          RN_FIELD(ema_decay, "f8", 1),
          RN_FIELD(growth, "f8", 1),
          RN_FIELD(backoff, "f8", 1),
          RN_FIELD(min_scale, "f8", 1),
          RN_FIELD(max_scale, "f8", 1),
          RN_FIELD(growth_interval, "u8", 1),
          RN_FIELD(max_skipped, "u8", 1),
          RN_FIELD(is_scaling, "u4", 1),
          RN_FIELD(ema_warmup, "u4", 1),
          RN_FIELD(attempted, "u8", 1),
          RN_FIELD(applied, "u8", 1),
          RN_FIELD(skipped, "u8", 1),
          RN_FIELD(good, "u8", 1),
          RN_FIELD(bad, "u8", 1),
          RN_FIELD(averaged, "u8", 1),
          RN_FIELD(micro, "u8", 1),
          RN_FIELD(batches, "u8", 1),
          RN_FIELD(loss_scale, "f8", 1),
          RN_FIELD(weight, "f8", 1),
          RN_FIELD(window, "u8", 1),
          RN_FIELD(norm, "f8", 1),
          RN_FIELD(bad_chunk, "i8", 1),
          RN_FIELD(has_nan, "u4", 1),
          RN_FIELD(stop, "u4", 1),
          RN_FIELD(seed_scale, "f4", 1),
          RN_FIELD(unscale, "f4", 1),
          RN_FIELD(clip, "f4", 1),
          RN_FIELD(clip_limit, "f4", 1),
          RN_FIELD(bc1, "f4", 1),
          RN_FIELD(bc2, "f4", 1),
          RN_FIELD(ema_rate, "f4", 1),
          RN_FIELD(b1, "f4", 1),
          RN_FIELD(one_minus_b1, "f4", 1),
          RN_FIELD(b2, "f4", 1),
          RN_FIELD(one_minus_b2, "f4", 1),
          RN_FIELD(eps_rounded, "f4", 1),
          RN_FIELD(row_lr, "f4", MAX_ROWS),
          RN_FIELD(row_lr_decay, "f4", MAX_ROWS),
          RN_FIELD(row_coupled, "f4", MAX_ROWS),
          RN_FIELD(factor, "f8", MAX_ROWS),
          RN_FIELD(decay, "f8", MAX_ROWS),
          RN_FIELD(coupled, "f8", MAX_ROWS),
          RN_FIELD(seed, "u8", 1),
          RN_FIELD(inputs, "u8", MAX_INPUTS)};
#undef RN_FIELD
}

// Folds the partials and takes the decision of a window.
void step_scalars(u64 scalars, u64 partials, i64 count) {
  const float* partial = at<const float>(partials);
  i64 bad_chunk = 0;
  while (bad_chunk < count && is_finite(partial[bad_chunk])) ++bad_chunk;
  scalar_step(*at<Scalars>(scalars), fold_partials(partial, count),
              bad_chunk < count ? bad_chunk : -1);
}

void restore_buffers(u64 target, u64 source, i64 num_bytes, u64 scalars) {
  if (is_skipped(*at<const Scalars>(scalars))) {
    memcpy(at<void>(target), at<const void>(source), static_cast<size_t>(num_bytes));
  }
}

// Asks for 2 MiB pages where the kernel offers them: walking flat regions then misses the
// translation cache 512 times less. It is advice; that it cannot be had is no error.
void advise_huge_pages(u64 address, u64 num_bytes) {
#ifdef MADV_HUGEPAGE
  constexpr u64 page = 1ull << 21;
  const u64 begin = (address + page - 1) / page * page;
  const u64 end = (address + num_bytes) / page * page;
  if (begin < end) madvise(at<void>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)address;
  (void)num_bytes;
#endif
}

void bind_scalars(py::module_& m) {
  m.attr("SCALARS_BYTES") = sizeof(Scalars);
  m.attr("MAX_ROWS") = MAX_ROWS;
  m.attr("CHUNK") = CHUNK;
  m.attr("MAX_DIMS") = MAX_DIMS;
  m.def("scalars_layout", &scalars_layout,
        "Fields of region S: name to (offset in bytes, NumPy type, count).");
  m.def(
      "derive_scalars", [](u64 s) { derive_recipe(*at<Scalars>(s)), derive_rows(*at<Scalars>(s)); },
      py::arg("scalars"), "Float constants of the recipe, after the host has written it.");
  m.def("step_scalars", &step_scalars, py::arg("scalars"), py::arg("partials"), py::arg("count"));
  m.def(
      "count_micro_step",
      [](u64 s, bool is_first, u64 weight) {
        count_micro_step(*at<Scalars>(s), is_first, at<const float>(weight));
      },
      py::arg("scalars"), py::arg("is_first"), py::arg("weight"));
}

void bind_updates(py::module_& m) {
  const auto nogil = py::call_guard<py::gil_scoped_release>();
  m.def(
      "update_range",
      [](const std::string& kernel, u64 w, u64 g, u64 first, u64 second, u64 a, int a_type,
         i64 begin, i64 count, u64 s, int row, int threads) {
        update_range(kernel, regions_of(w, g, first, second, a, a_type), begin, count,
                     *at<const Scalars>(s), row, threads);
      },
      py::arg("kernel"), py::arg("w"), py::arg("g"), py::arg("m"), py::arg("v"), py::arg("a"),
      py::arg("a_type"), py::arg("begin"), py::arg("count"), py::arg("scalars"), py::arg("row"),
      py::arg("threads"), nogil);
  m.def(
      "update_lars",
      [](const std::string& kernel, u64 w, u64 g, u64 first, u64 a, int a_type, u64 n, u64 rows,
         u64 chunks, i64 begin, i64 count, u64 s, int row, int threads) {
        update_lars(kernel, regions_of(w, g, first, 0, a, a_type), at<const float>(n),
                    chunks_of(rows, chunks, begin, count), *at<const Scalars>(s), row, threads);
      },
      py::arg("kernel"), py::arg("w"), py::arg("g"), py::arg("m"), py::arg("a"), py::arg("a_type"),
      py::arg("n"), py::arg("rows"), py::arg("chunks"), py::arg("begin"), py::arg("count"),
      py::arg("scalars"), py::arg("row"), py::arg("threads"), nogil);
}

void bind_norms(py::module_& m) {
  const auto nogil = py::call_guard<py::gil_scoped_release>();
  m.def(
      "trust_ratios",
      [](u64 w, u64 g, u64 n, u64 rows, u64 chunks, i64 begin, i64 count, u64 w_partials,
         u64 g_partials, u64 scalars, int row, int threads) {
        const Chunks part = chunks_of(rows, chunks, begin, count);
        const Scalars& s = *at<const Scalars>(scalars);
        squares_of_range(regions_of(w, g, 0, 0, 0, 0), part, at<float>(w_partials),
                         at<float>(g_partials), s, row, threads);
        trust_ratios(at<float>(n), part, at<const float>(w_partials), at<const float>(g_partials),
                     s, row);
      },
      py::arg("w"), py::arg("g"), py::arg("n"), py::arg("rows"), py::arg("chunks"),
      py::arg("begin"), py::arg("count"), py::arg("w_partials"), py::arg("g_partials"),
      py::arg("scalars"), py::arg("row"), py::arg("threads"), nogil);
  m.def(
      "check_range",
      [](u64 g, u64 rows, u64 chunks, i64 count, u64 partials, int threads) {
        check_range(at<const float>(g), chunks_of(rows, chunks, 0, count), at<float>(partials),
                    threads);
      },
      py::arg("g"), py::arg("rows"), py::arg("chunks"), py::arg("count"), py::arg("partials"),
      py::arg("threads"), nogil, "Partials of the squares of G.");
  m.def(
      "fold_partials", [](u64 p, i64 count) { return fold_partials(at<const float>(p), count); },
      py::arg("partials"), py::arg("count"));
  m.def(
      "gather",
      [](u64 rows, u64 chunks, i64 count, u64 g, bool is_sum, u64 partials, int threads) {
        gather(at<const GatherRow>(rows), at<const Chunk>(chunks), count, at<float>(g), is_sum,
               at<float>(partials), threads);
      },
      py::arg("rows"), py::arg("chunks"), py::arg("count"), py::arg("g"), py::arg("is_sum"),
      py::arg("partials"), py::arg("threads"), nogil);
}

void bind_averages(py::module_& m) {
  const auto nogil = py::call_guard<py::gil_scoped_release>();
  m.def(
      "average_ranges",
      [](u64 rows, i64 count, u64 s, int threads) {
        average_ranges(at<const AverageRow>(rows), count, *at<const Scalars>(s), threads);
      },
      py::arg("rows"), py::arg("count"), py::arg("scalars"), py::arg("threads"), nogil);
  m.def(
      "exchange_ranges",
      [](u64 rows, i64 count, int threads) {
        exchange_ranges(at<const AverageRow>(rows), count, threads);
      },
      py::arg("rows"), py::arg("count"), py::arg("threads"), nogil);
  m.def(
      "round_range",
      [](u64 w, u64 a, int type, i64 count, int threads) {
        round_range(at<const float>(w), at<u16>(a), static_cast<Dtype>(type), count, threads);
      },
      py::arg("w"), py::arg("a"), py::arg("a_type"), py::arg("count"), py::arg("threads"), nogil);
  m.def("restore_buffers", &restore_buffers, py::arg("target"), py::arg("source"),
        py::arg("num_bytes"), py::arg("scalars"), nogil,
        "Copies B' back to B when the step is skipped.");
}

}  // namespace

void bind_ranges(py::module_& m) {
  bind_scalars(m);
  bind_updates(m);
  bind_norms(m);
  bind_averages(m);
  m.def("advise_huge_pages", &advise_huge_pages, py::arg("address"), py::arg("num_bytes"),
        "Before the memory is first touched.");
  m.def(
      "allow_avx2", [](bool allowed) { return is_wide.exchange(allowed && has_avx2()); }, py::arg("allowed"),
      "Switches the wide loops on or off (tests compare both); returns what was set.");
}

}  // namespace rn

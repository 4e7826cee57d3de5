// The binding of sources and feeds: addresses and numbers in, never an object that a worker holds.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>

#include "bind.h"
#include "feed.h"
#include "huffman.h"
#include "survey.h"

namespace rn {
namespace {

namespace py = pybind11;

using Ids = py::array_t<i64, py::array::c_style | py::array::forcecast>;
// (slot, position, id, read, attempt)
using ErrandTuple = std::tuple<int, i64, i64, i64, int>;

// (mixup, cutmix, p, key, classes)
using MixTuple = std::tuple<float, float, float, u64, i64>;

Errand errand_of(const ErrandTuple& t) {
  return {std::get<0>(t), std::get<1>(t), std::get<2>(t), std::get<3>(t), std::get<4>(t)};
}

// (samples, batch over all ranks, unit, rank, world)
using BatchesTuple = std::tuple<i64, i64, i64, i64, i64>;

Batches batches_of(const BatchesTuple& t) {
  return {std::get<0>(t), std::get<1>(t), std::get<2>(t), std::get<3>(t), std::get<4>(t)};
}

Ids ids_of(const std::vector<i64>& ids) {
  return Ids(static_cast<py::ssize_t>(ids.size()), ids.data());
}

py::tuple batch_in(const Feed& feed, int slot) {
  return py::make_tuple(slot, ids_of(feed.ids(slot)), feed.is_clean(slot));
}

// The batch of a step as (slot, ids, whether it is clean); else why there is none yet. The consumer
// counts a step once it has its batch: after an exception in between it is given the same again.
py::object take(Feed& feed, i64 step, int most_held, double seconds, Workbench& bench) {
  if (const int lost = feed.unclaimed(step); lost >= 0) return batch_in(feed, lost);
  const int slot = feed.expect(most_held);
  Feed::Status status = Feed::Status::READY;
  if (!feed.is_ready(slot)) {
    py::gil_scoped_release release;
    status = feed.wait(slot, seconds, bench);
  }
  if (status != Feed::Status::READY) return py::cast(status);
  feed.hand_out();
  return batch_in(feed, slot);
}

void begin(Feed& feed, std::shared_ptr<EpochOrder> order, std::shared_ptr<EpochOrder> following,
           u32 epoch, i64 step, i64 end) {
  {
    py::gil_scoped_release release;
    order->prepare();
  }
  feed.begin({std::move(order), std::move(following), epoch, step, end});
}

std::vector<int> numbers(const std::deque<int>& slots) { return {slots.begin(), slots.end()}; }

void bind_order(py::module_& m) {
  m.def(
      "batch_part",
      [](const BatchesTuple& batches, i64 step) {
        const Part part = batches_of(batches).part(step);
        return std::make_tuple(part.first, part.count);
      },
      py::arg("batches"), py::arg("step"),
      "(first position, count) of a rank's part of a batch; batches: (samples, batch over all "
      "ranks, unit, rank, world).");
  py::class_<EpochOrder, std::shared_ptr<EpochOrder>>(m, "EpochOrder")
      .def(py::init<i64, bool, u64>(), py::arg("samples"), py::arg("shuffles"), py::arg("key"))
      .def_property_readonly("is_prepared", &EpochOrder::is_prepared)
      .def(
          "ids",
          [](EpochOrder& order, i64 first, i64 count) {
            std::vector<i64> ids(static_cast<std::size_t>(count));
            {
              py::gil_scoped_release release;
              order.fill({first, count}, ids.data());
            }
            return ids_of(ids);
          },
          py::arg("first"), py::arg("count"), "Samples at so many positions from the first on.");
  py::class_<Slots, std::shared_ptr<Slots>>(m, "Slots")
      .def(py::init<int>(), py::arg("count"))
      .def("__len__", &Slots::count)
      .def_property_readonly("has_free", &Slots::has_free)
      .def_property_readonly("filling", [](const Slots& s) { return s.filling().size(); })
      .def_property_readonly(
          "held", [](const Slots& s) { return py::tuple(py::cast(numbers(s.held()))); })
      .def_property_readonly("next", &Slots::next)
      .def("fill", &Slots::fill)
      .def("hand_out", &Slots::hand_out)
      .def("release", &Slots::release, py::arg("slot"));
}

const void* pointer(u64 address) { return reinterpret_cast<const void*>(address); }

OnError on_error_of(const std::string& name) {
  if (name == "raise") return OnError::RAISE;
  if (name == "replace") return OnError::REPLACE;
  if (name == "blank") return OnError::BLANK;
  throw py::value_error("on_error is 'raise', 'replace' or 'blank'");
}

std::shared_ptr<Feed> make_feed(std::shared_ptr<Source> source, const Program* program,
                                std::shared_ptr<Slots> ring,
                                const std::vector<std::pair<u64, u64>>& slots, int workers,
                                const std::string& on_error, const BatchesTuple& batches, i64 batch,
                                i64 sample_bytes, i64 label_bytes, u64 labels, u64 augment_key,
                                u64 replace_key, const std::tuple<i32, i32, int>& output,
                                const std::optional<MixTuple>& mix) {
  std::vector<SlotMemory> memory;
  for (const auto& [x, y] : slots)
    memory.push_back({reinterpret_cast<u8*>(x), reinterpret_cast<u8*>(y)});
  FeedOptions options;
  options.workers = workers;
  options.on_error = on_error_of(on_error);
  options.batches = batches_of(batches);
  options.sample_bytes = sample_bytes;
  options.slot_bytes = batch * sample_bytes;
  options.label_bytes = label_bytes;
  options.labels = labels;
  options.augment_key = augment_key;
  options.replace_key = replace_key;
  options.output = {std::get<0>(output), std::get<1>(output), std::get<2>(output)};
  if (mix) {
    if (program == nullptr || label_bytes != sizeof(i64))
      throw py::value_error("mixing takes pictures with int64 classes");
    const auto [mixup, cutmix, p, key, classes] = *mix;
    options.mix = {{mixup, cutmix, p}, key, classes};
  }
  return std::make_shared<Feed>(std::move(source), program, std::move(ring), memory, options);
}

py::dict stats_of(const Feed& feed) {
  const FeedStats& s = feed.stats();
  py::dict out;
  out["samples"] = s.samples.load();
  out["busy_seconds"] = static_cast<double>(s.busy_nanoseconds) * 1e-9;
  out["decode_seconds"] = static_cast<double>(s.decode_nanoseconds) * 1e-9;
  out["idle_seconds"] = static_cast<double>(s.idle_nanoseconds) * 1e-9;
  out["waits"] = s.waits.load();
  out["wait_seconds"] = static_cast<double>(s.wait_nanoseconds) * 1e-9;
  return out;
}

py::list damages_of(const Feed& feed, int slot) {
  py::list out;
  for (const Damage& d : feed.damages(slot))
    out.append(py::make_tuple(d.id, d.replacement, py::str(d.text)));
  return out;
}

py::array_t<u8> decode_whole(const py::bytes& data, int channels) {
  const std::string_view view = data;
  Workbench bench;
  Fetched fetched;
  {
    py::gil_scoped_release release;
    fetched = decode_picture(reinterpret_cast<const u8*>(view.data()), view.size(), channels,
                             {nullptr, {}}, bench);
  }
  if (fetched != Fetched::PICTURE) throw py::value_error(bench.problem);
  const Image& image = bench.image;
  return py::array_t<u8>({image.height, image.width, image.channels}, image.pixels);
}

void bind_sources(py::module_& m) {
  py::class_<Source, std::shared_ptr<Source>>(m, "Source");
  py::class_<PictureSource, Source, std::shared_ptr<PictureSource>>(m, "PictureSource")
      .def(py::init<u64, int, int, int, const std::array<i64, 4>&>(), py::arg("address"),
           py::arg("height"), py::arg("width"), py::arg("channels"), py::arg("strides"));
  py::class_<RowSource, Source, std::shared_ptr<RowSource>>(m, "RowSource")
      .def(py::init<u64, i64>(), py::arg("address"), py::arg("row_bytes"));
  py::class_<FileSource, Source, std::shared_ptr<FileSource>>(m, "FileSource")
      .def(py::init([](const py::bytes& paths, std::vector<i64> offsets, int channels, bool jpeg) {
             return std::make_shared<FileSource>(paths, std::move(offsets), channels, jpeg);
           }),
           py::arg("paths"), py::arg("offsets"), py::arg("channels"), py::arg("decode_jpeg"));
  py::class_<ForeignSource, Source, std::shared_ptr<ForeignSource>>(m, "ForeignSource")
      .def(py::init<>());
  py::class_<Workbench, std::shared_ptr<Workbench>>(m, "Workbench").def(py::init<>());
}

}  // namespace

void bind_loader(py::module_& m) {
  const auto nogil = py::call_guard<py::gil_scoped_release>();
  bind_sources(m);
  bind_order(m);
  m.def(
      "survey",
      [](const FileSource& source, i64 begin, i64 end, u64 out, int height, int width,
         int threads) {
        std::vector<std::tuple<i64, int, std::string>> found;
        u8* pixels = reinterpret_cast<u8*>(out);
        for (Finding& f : survey(source, begin, end, pixels, height, width, threads))
          found.emplace_back(f.id, f.kind, std::move(f.text));
        return found;
      },
      py::arg("source"), py::arg("begin"), py::arg("end"), py::arg("out"), py::arg("height"),
      py::arg("width"), py::arg("threads"), nogil,
      "[(id, 0 damaged | 1 foreign | 2 other size, text)] of pictures begin to end.");
  m.def("decode_jpeg", &decode_whole, py::arg("data"), py::arg("channels"),
        "A JPEG as (H, W, channels) uint8; ValueError when it is damaged, warnings included.");
  m.def("has_jpeg", &JpegDecoder::available, "Whether this build has libjpeg-turbo.");
  m.def("use_huffman", &use_huffman, py::arg("wanted"),
        "Our entropy decoder for ordinary JPEG files, or libjpeg-turbo's for all; the same bits. "
        "Returns whether ours is in use now.");
  m.def(
      "huffman_counts",
      [] {
        const HuffmanCounts counts = huffman_counts();
        return py::make_tuple(counts.decoded, counts.started_over, counts.left);
      },
      "JPEG files of this process: (decoded with our entropy decoder, begun with it and decoded "
      "anew by libjpeg-turbo's because something was irregular, left to that one at once).");
  py::class_<Feed, std::shared_ptr<Feed>> feed(m, "Feed");
  py::enum_<Feed::Status>(feed, "Status")
      .value("READY", Feed::Status::READY)
      .value("PENDING", Feed::Status::PENDING)
      .value("FOREIGN", Feed::Status::FOREIGN);
  feed.def(py::init(&make_feed), py::kw_only(), py::arg("source"), py::arg("program"),
           py::arg("ring"), py::arg("slots"), py::arg("workers"), py::arg("on_error"),
           py::arg("batches"), py::arg("batch"), py::arg("sample_bytes"), py::arg("label_bytes"),
           py::arg("labels"),
           py::arg("augment_key"), py::arg("replace_key"), py::arg("output"),
           py::arg("mix") = py::none(), py::keep_alive<1, 3>())
      .def("begin", &begin, py::arg("order"), py::arg("following"), py::arg("epoch"),
           py::arg("step"), py::arg("end"))
      .def("take", &take, py::arg("step"), py::arg("most_held"), py::arg("seconds"),
           py::arg("bench"),
           "(slot, ids, is_clean) of a step's batch, or a Status after so many seconds.")
      .def("unclaimed", &Feed::unclaimed, py::arg("step"),
           "Slot of this step's batch if it was handed out and never arrived, else -1.")
      .def("release", &Feed::release, py::arg("slot"))
      .def("expect_helpers", &Feed::expect_helpers)
      .def("damages", &damages_of, py::arg("slot"), "[(id, replacement or -1, text)] by position.")
      .def(
          "error",
          [](const Feed& f, int slot) -> py::object {
            i64 id = -1;
            const std::string text = f.error(slot, &id);
            if (text.empty()) return py::none();
            return py::make_tuple(id, text);
          },
          py::arg("slot"), "None, or (id, text) of the first position that failed.")
      .def(
          "take_errand",
          [](Feed& f, double seconds) -> py::object {
            Errand e{};
            bool got;
            {
              py::gil_scoped_release release;
              got = f.take_errand(seconds, &e);
            }
            if (!got) return py::none();
            return py::make_tuple(e.slot, e.position, e.id, e.read, e.attempt);
          },
          py::arg("seconds"))
      .def(
          "finish_picture",
          [](Feed& f, const ErrandTuple& e, u64 address, int height, int width, int channels,
             u64 label, Workbench& bench) {
            const u8* pixels = static_cast<const u8*>(pointer(address));
            f.finish_picture(errand_of(e), picture_at(pixels, height, width, channels),
                             pointer(label), bench);
          },
          nogil)
      .def(
          "finish_row",
          [](Feed& f, const ErrandTuple& e, u64 row, u64 label) {
            f.finish_row(errand_of(e), pointer(row), pointer(label));
          },
          nogil)
      .def("finish_jpeg",
           [](Feed& f, const ErrandTuple& e, const py::bytes& data, int channels, u64 label,
              Workbench& bench) {
             const std::string_view view = data;
             py::gil_scoped_release release;
             f.finish_jpeg(errand_of(e), reinterpret_cast<const u8*>(view.data()), view.size(),
                           channels, pointer(label), bench);
           })
      .def(
          "fail",
          [](Feed& f, const ErrandTuple& e, const std::string& text, Workbench& bench) {
            f.fail(errand_of(e), text, bench);
          },
          nogil)
      .def("cancel", &Feed::cancel, nogil)
      .def("close", &Feed::close, nogil)
      .def_property_readonly("is_closed", &Feed::is_closed)
      .def("stats", &stats_of);
}

}  // namespace rn

#include "survey.h"

#include <algorithm>
#include <mutex>

#include "parallel.h"

namespace rn {

namespace {

// (H, W, C) as C planes: what the programs read fastest.
void put_planes(const Image& image, u8* out) {
  const i64 count = static_cast<i64>(image.height) * image.width;
  for (i64 place = 0; place < count; ++place)
    for (int c = 0; c < image.channels; ++c)
      out[c * count + place] = image.pixels[place * image.channels + c];
}

}  // namespace

std::vector<Finding> survey(const FileSource& source, i64 begin, i64 end, u8* out, int height,
                            int width, int threads) {
  std::vector<Finding> findings;
  std::mutex guard;
  const auto add = [&](Finding finding) {
    std::lock_guard<std::mutex> hold(guard);
    findings.push_back(std::move(finding));
  };
  parallel_for(end - begin, 1, threads, [&](i64 first, i64 last) {
    Workbench bench;
    for (i64 id = begin + first; id < begin + last; ++id) {
      const Fetched fetched = source.fetch(id, {nullptr, {}}, bench);
      const Image& image = bench.image;
      if (fetched == Fetched::FOREIGN) {
        add({id, Finding::FOREIGN, ""});
      } else if (fetched == Fetched::DAMAGED) {
        add({id, Finding::DAMAGED, bench.problem});
      } else if (height != 0 && (image.height != height || image.width != width)) {
        add({id, Finding::OTHER_SIZE,
             std::to_string(image.height) + "x" + std::to_string(image.width)});
      } else if (out != nullptr) {
        put_planes(image, out + id * height * width * image.channels);
      }
    }
  });
  std::sort(findings.begin(), findings.end(),
            [](const Finding& a, const Finding& b) { return a.id < b.id; });
  return findings;
}

}  // namespace rn

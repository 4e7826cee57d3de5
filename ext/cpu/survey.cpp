#include "survey.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "parallel.h"

namespace rn {

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
        const std::size_t bytes = static_cast<std::size_t>(height) * width * image.channels;
        std::memcpy(out + id * bytes, image.pixels, bytes);
      }
    }
  });
  std::sort(findings.begin(), findings.end(),
            [](const Finding& a, const Finding& b) { return a.id < b.id; });
  return findings;
}

}  // namespace rn

// All pictures of a folder at once: decoded into memory, or only looked at.
#pragma once
#include <string>
#include <vector>

#include "source.h"

namespace rn {

struct Finding {
  enum Kind { DAMAGED = 0, FOREIGN = 1, OTHER_SIZE = 2 };
  i64 id;
  Kind kind;
  std::string text;
};

// Decodes pictures [begin, end) of `source` whole, on up to `threads` threads. Those of height x
// width go, in planes, to out + id * channels * height * width when `out` is given. What was not
// decoded or does not have that size is found, by id; height = 0 allows any size.
std::vector<Finding> survey(const FileSource& source, i64 begin, i64 end, u8* out, int height,
                            int width, int threads);

}  // namespace rn

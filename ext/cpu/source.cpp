#include "source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace rn {

u64 thread_nanoseconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<u64>(t.tv_sec) * 1000000000ull + static_cast<u64>(t.tv_nsec);
}

Image picture_at(const u8* pixels, int height, int width, int channels) {
  return {pixels, height, width,  channels, static_cast<i64>(width) * channels, channels, 1,
          0,      0,      height, width};
}

Fetched PictureSource::fetch(i64 id, const Want&, Workbench& bench) const {
  bench.image = first_;
  bench.image.pixels += id * stride_;
  bench.image.ahead = &bench.ahead;
  return Fetched::PICTURE;
}

void PictureSource::prefetch(i64 id, Ahead& ahead) const {
  // A random picture of a large set is in no cache; its address is known one sample ahead.
  ahead.begin(first_.pixels + id * stride_, std::min<i64>(stride_, 4096));
}

namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

i64 read_file(const std::string& path, Workbench& bench) {
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat status;
  if (file.fd < 0 || fstat(file.fd, &status) != 0) {
    bench.problem = std::string("cannot be opened: ") + std::strerror(errno);
    return -1;
  }
  u8* bytes = bench.file.reserve(static_cast<std::size_t>(status.st_size) + 1);
  i64 have = 0;
  while (have < status.st_size) {
    const ssize_t got =
        read(file.fd, bytes + have, static_cast<std::size_t>(status.st_size - have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      bench.problem = std::string("cannot be read: ") + std::strerror(errno);
      return -1;
    }
    if (got == 0) break;
    have += got;
  }
  if (have == 0) bench.problem = "is empty (0 bytes)";
  return have == 0 ? -1 : have;
}

Fetched decode_picture(const u8* data, std::size_t size, int channels, const Want& want,
                       Workbench& bench) {
  const u64 start = thread_nanoseconds();
  JpegDecoder& decoder = bench.decoder;
  bool good = decoder.open(data, size, channels);
  if (good) {
    Box needed{0, 0, decoder.height(), decoder.width()};
    try {
      if (want.program) needed = want.program->crop_of(needed.height, needed.width, want.key);
    } catch (const PictureError& error) {
      bench.problem = error.what();
      return Fetched::DAMAGED;
    }
    u8* pixels = bench.pixels.reserve(decoder.bytes_for(needed));
    good = decoder.decode(needed, pixels, &bench.image);
  }
  bench.decode_nanoseconds += thread_nanoseconds() - start;
  if (good) return Fetched::PICTURE;
  bench.problem = decoder.problem() + " (" + std::to_string(size) + " bytes)";
  return Fetched::DAMAGED;
}

Fetched FileSource::fetch(i64 id, const Want& want, Workbench& bench) const {
  if (!decode_jpeg_) return Fetched::FOREIGN;
  const i64 size = read_file(path(id), bench);
  if (size < 0) return Fetched::DAMAGED;
  if (!is_jpeg(bench.file.data(), static_cast<std::size_t>(size))) return Fetched::FOREIGN;
  return decode_picture(bench.file.data(), static_cast<std::size_t>(size), channels_, want, bench);
}

}  // namespace rn

#include "feed.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "bypass.h"
#include "clock.h"

namespace rn {

namespace {

constexpr int ACCOUNT_ITEMS = 16;          // work items between two readings of the CPU clock
constexpr i64 CACHE_BYTES = 8 << 20;       // a ring up to this is written through the caches
constexpr i64 MOST_TILE_BYTES = 64 << 10;  // of a sample that is made in one and copied past them
constexpr int MAX_ATTEMPTS = 16;           // replacements tried for one sample

// Samples in a work item: one encoded picture, else about 256 KiB of output, at most 64.
i64 grain_of(const Source& source, i64 sample_bytes) {
  if (source.is_encoded()) return 1;
  return std::max<i64>(1, std::min<i64>(64, (1 << 18) / std::max<i64>(1, sample_bytes)));
}

// Whether the ring is too large for the caches, and a sample small enough to be made inside them.
bool should_bypass(const std::vector<SlotMemory>& slots, const FeedOptions& options) {
  if (slots.size() < 2 || options.sample_bytes > MOST_TILE_BYTES ||
      options.sample_bytes % 64 != 0 || options.mix.classes > 0)  // mixing reads them again
    return false;
  const auto is_aligned = [](const SlotMemory& m) { return reinterpret_cast<u64>(m.x) % 64 == 0; };
  return options.slot_bytes * static_cast<i64>(slots.size()) > CACHE_BYTES &&
         std::all_of(slots.begin(), slots.end(), is_aligned);
}

// What top -H, perf and debuggers show; 15 characters at most.
void name_thread(std::thread& thread, const char* name) {
#ifdef __linux__
  pthread_setname_np(thread.native_handle(), name);
#else
  (void)thread, (void)name;
#endif
}

}  // namespace

Feed::Feed(std::shared_ptr<const Source> source, const Program* program,
           std::shared_ptr<Slots> ring, const std::vector<SlotMemory>& slots,
           const FeedOptions& options)
    : source_(std::move(source)),
      program_(program),
      options_(options),
      ring_(std::move(ring)),
      grain_(grain_of(*source_, options.sample_bytes)),
      bypasses_(should_bypass(slots, options)),
      owner_(getpid()),
      changed_(new Changes),
      threads_(new std::vector<std::thread>) {
  if (options.on_error == OnError::BLANK && options.label_bytes > 0 && options.labels == 0)
    throw std::invalid_argument("a blank sample needs a label that is known without reading");
  for (const SlotMemory& memory : slots) {
    slots_.emplace_back(new Slot);
    slots_.back()->memory = memory;
    if (options.mix.classes > 0)
      slots_.back()->pairs.allocate(options.slot_bytes / options.sample_bytes);
  }
  if (!source_->is_native()) return;
  try {
    for (int i = 0; i < options.workers; ++i) {
      threads_->emplace_back([this] { run(); });
      name_thread(threads_->back(), "rn-worker");
    }
  } catch (const std::system_error& error) {
    const std::size_t started = threads_->size();
    close();
    throw std::runtime_error("only " + std::to_string(started) + " of " +
                             std::to_string(options.workers) +
                             " worker threads could be started: " + error.what());
  }
}

Feed::~Feed() { close(); }

void Feed::close() {
  if (getpid() != owner_) {
    // After a fork the threads exist in the parent only; there is nothing to join here, and the
    // handles may not be destroyed as if they were running.
    (void)threads_.release();
    (void)changed_.release();
    threads_.reset(new std::vector<std::thread>);
    changed_.reset(new Changes);
    closed_ = true;
    return;
  }
  closed_ = true;
  for (std::mutex* guard : {&queue_guard_, &ready_guard_, &errand_guard_}) {
    // An empty turn of each lock: whoever saw closed_ == false is by now waiting to be woken.
    std::lock_guard<std::mutex> turn(*guard);
  }
  changed_->queue.notify_all();
  changed_->ready.notify_all();
  changed_->errand.notify_all();
  for (std::thread& thread : *threads_) thread.join();
  threads_->clear();
}

void Feed::require_owner() const {
  if (getpid() != owner_)
    throw std::runtime_error(
        "this stream belongs to the process that opened it; after a fork open a new one");
  if (closed_) throw std::runtime_error("this stream is closed; open a new one");
}

void Feed::run() {
  Workbench bench;
  account(bench);
  Item item;
  while (wait_item(&item, bench)) settle(item.slot, run_item(item, bench));
}

bool Feed::take_item(Item* item) {
  std::lock_guard<std::mutex> hold(queue_guard_);
  if (closed_ || queue_.empty()) return false;
  Slot& s = *slots_[queue_.front()];
  const i64 count = static_cast<i64>(s.ids.size());
  *item = {queue_.front(), s.cursor, std::min(s.cursor + grain_, count)};
  s.cursor = item->end;
  if (s.cursor == count) queue_.pop_front();
  return true;
}

// The next item, whenever it comes; false when the feed is closed.
bool Feed::wait_item(Item* item, Workbench& bench) {
  for (prepare_following(); !take_item(item); prepare_following()) {
    account(bench);
    const auto start = Clock::now();
    std::unique_lock<std::mutex> hold(queue_guard_);
    changed_->queue.wait(hold, [&] { return closed_ || !queue_.empty(); });
    stats_.idle_nanoseconds += since(start);
    if (closed_) return false;
  }
  return true;
}

// Makes the order of the next epoch, if none of the workers has.
void Feed::prepare_following() {
  if (!has_following_) return;
  std::shared_ptr<EpochOrder> order;
  {
    std::lock_guard<std::mutex> hold(queue_guard_);
    order.swap(following_);
    has_following_ = false;
  }
  try {
    if (order) order->prepare();
  } catch (const std::bad_alloc&) {
    return;  // whoever needs it will try again, and may say so
  }
}

// Adds this thread's CPU time since the last account to the statistics. Waiting takes none of it.
void Feed::account(Workbench& bench) {
  const u64 now = thread_nanoseconds();
  if (bench.clock != 0) {
    stats_.busy_nanoseconds += now - bench.clock;
    stats_.decode_nanoseconds += bench.decode_nanoseconds - bench.clock_decode;
  }
  bench.clock = now;
  bench.clock_decode = bench.decode_nanoseconds;
  bench.items = 0;
}

// Makes the samples of an item; how many of them are done (errands are not yet).
i64 Feed::run_item(const Item& item, Workbench& bench) {
  Slot& s = *slots_[item.slot];
  const i64 count = item.end - item.begin;
  i64* ids = s.ids.data() + item.begin;
  s.order->fill({s.part.first + item.begin, count}, ids);
  if (program_)
    bench.foresight.draw(program_->streams(), options_.augment_key, s.epoch, ids, count);
  i64 done = 0;
  for (i64 k = 0; k < count; ++k) {
    if (k + 1 < count) look_ahead(ids[k + 1], bench);
    bench.foresight.look_at(k);
    if (!pursue_or_report({item.slot, item.begin + k, ids[k], ids[k], 0}, bench)) continue;
    pair_up(item.slot, item.begin + k);
    ++done;
  }
  bench.foresight.forget();
  stats_.samples += static_cast<u64>(done);
  // Reading the clock is a system call, as long as a small picture on some machines.
  if (++bench.items == ACCOUNT_ITEMS) account(bench);
  return done;
}

SampleKey Feed::key_of(const Errand& errand, const Workbench& bench) const {
  return {options_.augment_key, slots_[errand.slot]->epoch, static_cast<u64>(errand.id),
          bench.foresight.seen()};
}

// Fetches and makes one sample, through replacements if need be. False: it left as an errand.
bool Feed::pursue(Errand errand, Workbench& bench) {
  for (;;) {
    switch (source_->fetch(errand.read, {program_, key_of(errand, bench)}, bench)) {
      case Fetched::PICTURE:
        if (render(errand, bench)) {
          put_label(errand, nullptr);
          return true;
        }
        if (give_up(&errand, bench.problem)) return true;
        break;
      case Fetched::ROW:
        put_row(errand, bench.row);
        put_label(errand, nullptr);
        return true;
      case Fetched::FOREIGN:
        leave_errand(errand);
        return false;
      case Fetched::DAMAGED:
        if (give_up(&errand, bench.problem)) return true;
    }
  }
}

// A worker has nobody above it to catch (memory running out, say): the consumer gets it.
bool Feed::pursue_or_report(const Errand& errand, Workbench& bench) {
  try {
    return pursue(errand, bench);
  } catch (const std::exception& error) {
    std::lock_guard<std::mutex> hold(slots_[errand.slot]->guard);
    report(errand, errand.read, error.what());
    return true;
  }
}

// Keeps the error of the first position, whatever the order in which workers meet them. The slot's
// guard is held.
void Feed::report(const Errand& errand, i64 damaged, const std::string& text) {
  Slot& s = *slots_[errand.slot];
  if (s.error_position >= 0 && s.error_position <= errand.position) return;
  s.error_position = errand.position;
  s.error_id = damaged;
  s.error = text;
}

// Records a damaged sample. True: the place is settled (error or blank); false: read the next one.
bool Feed::give_up(Errand* errand, const std::string& text) {
  Slot& s = *slots_[errand->slot];
  const i64 damaged = errand->read;
  const bool is_last = options_.on_error == OnError::REPLACE && ++errand->attempt > MAX_ATTEMPTS;
  i64 replacement = -1;
  if (options_.on_error == OnError::REPLACE && !is_last) {
    const u64 random = word64(keyed(options_.replace_key, static_cast<u32>(errand->attempt),
                                    s.epoch, static_cast<u64>(errand->id)));
    replacement = static_cast<i64>(below(random, static_cast<u64>(options_.batches.samples)));
    errand->read = replacement;
  }
  std::lock_guard<std::mutex> hold(s.guard);
  s.damages.push_back({errand->position, damaged, replacement, text});
  if (options_.on_error == OnError::BLANK) {
    std::memset(s.memory.x + errand->position * options_.sample_bytes, 0,
                static_cast<std::size_t>(options_.sample_bytes));
    errand->read = errand->id;
    put_label(*errand, nullptr);
    return true;
  }
  if (options_.on_error == OnError::REPLACE && !is_last) return false;
  report(*errand, damaged,
         is_last ? text + "; so were " + std::to_string(MAX_ATTEMPTS) +
                       " samples drawn in place of sample " + std::to_string(errand->id)
                 : text);
  return true;
}

// False: the program cannot take this picture (too small for its crop, say).
bool Feed::render(const Errand& errand, Workbench& bench) {
  u8* out = slots_[errand.slot]->memory.x + errand.position * options_.sample_bytes;
  OutputSpec spec = options_.output;
  spec.streams = bypasses_;
  try {
    program_->run(bench.image, key_of(errand, bench), out, spec, bench.scratch);
    return true;
  } catch (const PictureError& error) {
    bench.problem = error.what();
    return false;
  }
}

void Feed::put_row(const Errand& errand, const void* row) {
  std::memcpy(slots_[errand.slot]->memory.x + errand.position * options_.sample_bytes, row,
              static_cast<std::size_t>(options_.sample_bytes));
}

// The label of what was read, and its id: a replacement brings both.
void Feed::put_label(const Errand& errand, const void* label) {
  Slot& s = *slots_[errand.slot];
  if (errand.read != errand.id) s.ids[errand.position] = errand.read;
  if (options_.label_bytes == 0) return;
  if (label == nullptr)
    label = reinterpret_cast<const u8*>(options_.labels) + errand.read * options_.label_bytes;
  void* out = s.memory.y + errand.position * options_.label_bytes;
  if (options_.mix.classes > 0) out = &s.pairs.label(errand.position);
  std::memcpy(out, label, static_cast<std::size_t>(options_.label_bytes));
}

// So many samples of a slot are missing no longer.
void Feed::settle(int slot, i64 samples) {
  if (samples == 0) return;
  if (bypasses_) bypass_fence();
  if (slots_[slot]->missing.fetch_sub(samples) != samples || !bell_.complete()) return;
  {
    std::lock_guard<std::mutex> turn(ready_guard_);
  }
  changed_->ready.notify_all();
}

}  // namespace rn

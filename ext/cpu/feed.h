// The staging ring and the threads that fill it.
//
// A slot holds one batch. Its samples are cut into work items; every item writes to addresses fixed
// by the position in the batch, so workers may finish in any order and nothing is sorted or copied.
// A slot is ready when its counter of missing samples reaches zero. The ring is the only memory:
// whoever fills waits for a free slot, whoever consumes waits for a ready one.
//
// What has to be read by Python (an own data set, a picture that is no JPEG) leaves as an Errand
// and comes back through `finish_*` or `fail`, from any thread.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "doorbell.h"
#include "order.h"
#include "pairs.h"
#include "slots.h"
#include "source.h"

namespace rn {

enum class OnError { RAISE, REPLACE, BLANK };

struct FeedOptions {
  int workers = 0;       // 0: the calling thread works inside `work`
  Batches batches{};     // of samples: all of the data set, replacements are drawn from them
  i64 sample_bytes = 0;  // of one sample's x
  i64 slot_bytes = 0;    // of x in a slot
  i64 label_bytes = 0;   // of one sample's y; 0: no labels
  u64 labels = 0;        // address of all labels, or 0 when Python brings them
  u64 augment_key = 0;   // key of the program's draws
  u64 replace_key = 0;   // key of the replacements of damaged samples
  OnError on_error = OnError::RAISE;
  OutputSpec output{};
  MixOptions mix{};  // y is then (classes) float32, and label_bytes those of the int64 class
};

struct SlotMemory {
  u8* x;
  u8* y;
};

// A damaged sample and what took its place (-1: nothing).
struct Damage {
  i64 position, id, replacement;
  std::string text;
};

// One sample that is being made: which place of which slot, for whom, read from which id.
struct Errand {
  int slot;
  i64 position, id, read;
  int attempt;
};

// The batches that come: steps [next, end) of an epoch.
struct Course {
  std::shared_ptr<EpochOrder> order;
  std::shared_ptr<EpochOrder> following;  // of the next epoch, made ahead; may be null
  u32 epoch = 0;
  i64 next = 0, end = 0;
};

struct FeedStats {
  std::atomic<u64> samples{0}, busy_nanoseconds{0}, decode_nanoseconds{0}, idle_nanoseconds{0},
      wait_nanoseconds{0}, waits{0};
};

class Feed {
 public:
  enum class Status { READY, PENDING, FOREIGN };

  Feed(std::shared_ptr<const Source> source, const Program* program, std::shared_ptr<Slots> ring,
       const std::vector<SlotMemory>& slots, const FeedOptions& options);
  ~Feed();
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  // Orders the first batches of a course; its order is prepared. Nothing is being filled.
  void begin(const Course& course);
  // Releases the oldest batches down to `most_held`, orders ahead; the slot of the next batch.
  int expect(int most_held);
  // The next batch goes to the consumer, when it is ready.
  int hand_out();
  // The slot of a batch that was handed out and never arrived, since a signal came in between: the
  // consumer, whose next step this is, does not know of it. Else -1.
  int unclaimed(i64 step) const;
  void release(int slot);
  bool is_ready(int slot) const { return slots_[slot]->missing == 0; }
  // Waits up to `seconds`; without workers the calling thread does the work, for about as long.
  // FOREIGN: an errand waits and nobody serves them.
  Status wait(int slot, double seconds, Workbench& bench);
  // From now on other threads call take_errand.
  void expect_helpers() { has_helpers_ = true; }
  // Of a ready slot: the ids that are really in it, and what was damaged.
  const std::vector<i64>& ids(int slot) const { return slots_[slot]->ids; }
  bool is_clean(int slot) const;  // nothing was damaged, no error
  std::vector<Damage> damages(int slot) const;
  // "" or the error of the first position that has one.
  std::string error(int slot, i64* id) const;

  // An errand for Python, false after `seconds` or when the feed is closed.
  bool take_errand(double seconds, Errand* errand);
  void finish_picture(const Errand& errand, const Image& image, const void* label,
                      Workbench& bench);
  void finish_row(const Errand& errand, const void* row, const void* label);
  void finish_jpeg(const Errand& errand, const u8* data, std::size_t size, int channels,
                   const void* label, Workbench& bench);
  void fail(const Errand& errand, const std::string& text, Workbench& bench);

  // Ends the course and takes back all that was ordered and not begun; slots are ready when what
  // was begun has ended.
  void cancel();
  // Stops the threads after the items they are at. Idempotent.
  void close();
  bool is_closed() const { return closed_; }
  const FeedStats& stats() const { return stats_; }

 private:
  struct Slot {
    SlotMemory memory{};
    std::shared_ptr<EpochOrder> order;
    Part part{};           // its positions in the order
    std::vector<i64> ids;  // an item's are there once it is begun
    i64 cursor = 0;  // guarded by queue_guard_
    u32 epoch = 0;
    std::atomic<i64> missing{0};
    mutable std::mutex guard;
    std::vector<Damage> damages;
    i64 error_position = -1, error_id = -1;
    std::string error;
    Pairs pairs;
  };
  struct Changes {
    std::condition_variable queue, ready, errand;
  };
  struct Item {
    int slot;
    i64 begin, end;
  };

  void order_ahead();
  void submit(int slot, const Part& part);
  Status work(int slot, double seconds, Workbench& bench);
  void run();
  void prepare_following();
  bool take_item(Item* item);
  bool wait_item(Item* item, Workbench& bench);
  void account(Workbench& bench);
  i64 run_item(const Item& item, Workbench& bench);
  // Has the bytes and the label of the next sample on their way while this one is made.
  void look_ahead(i64 id, Workbench& bench) const {
    source_->prefetch(id, bench.ahead);
    if (options_.labels != 0)
      __builtin_prefetch(reinterpret_cast<const u8*>(options_.labels) + id * options_.label_bytes);
  }
  bool pursue(Errand errand, Workbench& bench);
  bool pursue_or_report(const Errand& errand, Workbench& bench);
  void report(const Errand& errand, i64 damaged, const std::string& text);
  bool give_up(Errand* errand, const std::string& text);
  bool render(const Errand& errand, Workbench& bench);
  void put_row(const Errand& errand, const void* row);
  void put_label(const Errand& errand, const void* label);
  void pair_up(int slot, i64 position);
  bool check_label(int slot, i64 position);
  void settle(int slot, i64 samples);
  void leave_errand(const Errand& errand);
  void finish(const Errand& errand);
  SampleKey key_of(const Errand& errand, const Workbench& bench) const;
  void require_owner() const;

  const std::shared_ptr<const Source> source_;
  const Program* const program_;  // outlives the feed; null when rows pass untouched
  const FeedOptions options_;
  const std::shared_ptr<Slots> ring_;
  const i64 grain_;
  const bool bypasses_;  // the caches, on the way to the slots
  Course course_;
  i64 given_ = 0;  // steps handed out: the next one's number
  int last_ = -1;  // slot of the last one
  const int owner_;      // process id: threads do not survive a fork

  std::vector<std::unique_ptr<Slot>> slots_;
  std::mutex queue_guard_;
  std::deque<int> queue_;   // slots with items left, oldest first
  std::shared_ptr<EpochOrder> following_;  // to be prepared by a worker
  std::atomic<bool> has_following_{false};
  std::mutex ready_guard_;  // taken to announce a ready slot or an errand
  Doorbell bell_;
  std::mutex errand_guard_;
  std::deque<Errand> errands_;
  std::atomic<i64> errand_count_{0};
  std::atomic<bool> has_helpers_{false};
  std::atomic<bool> closed_{false};
  FeedStats stats_;
  // Of the process that made them: a child of a fork lets go of both without destroying them, for
  // it would wait for threads that it has not got.
  std::unique_ptr<Changes> changed_;
  std::unique_ptr<std::vector<std::thread>> threads_;
};

}  // namespace rn

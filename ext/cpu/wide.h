// The same loop for the base instruction set and for AVX2, chosen when it runs.
//
// Contraction is off and every operation is IEEE, so both give equal bits; the vector width changes
// only how many elements are under way. A reduction must fix its own lanes (see norms.h).
#pragma once
#include <atomic>

namespace rn {

// Whether run_wide uses AVX2: the processor has it and tests have not turned it off.
extern std::atomic<bool> is_wide;

inline bool has_avx2() {
#if defined(__x86_64__) && defined(__GNUC__)
  return __builtin_cpu_supports("avx2") != 0;
#else
  return false;
#endif
}

#if defined(__x86_64__) && defined(__GNUC__)
// flatten: everything the body calls is compiled into this one function, so no inline function of
// a header is ever emitted for AVX2 and picked by the linker for a processor without it.
template <class Body>
__attribute__((target("avx2"), flatten, noinline)) void run_avx2(const Body& body) {
  body();
}
#else
template <class Body>
void run_avx2(const Body& body) {
  body();
}
#endif

template <class Body>
__attribute__((flatten, noinline)) void run_portable(const Body& body) {
  body();
}

template <class Body>
void run_wide(const Body& body) {
  if (is_wide.load(std::memory_order_relaxed)) {
    run_avx2(body);
  } else {
    run_portable(body);
  }
}

}  // namespace rn

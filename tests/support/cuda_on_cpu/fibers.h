// What the parts of the runtime share; a kernel does not see it.
#pragma once
#include <vector>

#include "runtime.h"

namespace cuda_on_cpu {

enum class State { READY, IN_WARP, AT_BARRIER, DONE };

struct Fiber : Thread {
  int number = 0;
  State state = State::DONE;
  const char* waits_at = "";
  char* stack = nullptr;
  void* context = nullptr;  // where it goes on
  void* tsan = nullptr;     // what the sanitizers know it by
  void* asan = nullptr;
  int group = 0;            // of asynchronous copies
  std::vector<Copy> copies;
};

extern std::vector<Fiber> fibers;
Fiber& self();

// The others have their turns until somebody makes this one READY again.
void pause(State state, const char* waits_at);
void run_grid(dim3 grid, dim3 block, size_t shared_size, unsigned order, void (*entry)(void*), void* argument);
void forget_meetings();

// What ThreadSanitizer learns: what was written before `release` may be read after `acquire`.
void release(void* token);
void acquire(void* token);

}  // namespace cuda_on_cpu

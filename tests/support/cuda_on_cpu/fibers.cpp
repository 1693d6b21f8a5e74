// CUDA threads as fibers of one thread: a block runs until all its fibers are done, blocks run one after another.
//
// A fiber keeps its turn until it pauses at a barrier or an instruction of its warp; then the scheduler gives the next ready
// fiber its turn, forwards, backwards or in an order drawn by chance. When nobody is ready and somebody is not done, the
// kernel would hang on a GPU: that is reported with what each waits for.
#include "fibers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#if defined(RACES)
#include <sanitizer/tsan_interface.h>
#elif defined(BOUNDS)
#include <sanitizer/common_interface_defs.h>
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace cuda_on_cpu {

constexpr size_t STACK = 128 << 10, PAGE = 4096;

Thread* current = nullptr;
dim3 block_index, block_size, grid_size;
std::vector<Fiber> fibers;

namespace {

Fiber scheduler;
void* shared = nullptr;
size_t shared_given = 0;
void (*entry)(void*) = nullptr;
void* argument = nullptr;
int living = 0, arrived = 0, votes = 0, last_votes = 0;
const char* barrier = nullptr;
char started, ended, barrier_tokens[2];
int barriers_passed = 0;
#if defined(BOUNDS)
const void* main_stack = nullptr;
size_t main_size = 0;
#endif

#if defined(__x86_64__)
// Swaps stacks; what a called function must keep is on them.
extern "C" void cuda_on_cpu_swap(void** from, void* to);
asm(R"(
.text
.type cuda_on_cpu_swap,@function
cuda_on_cpu_swap:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size cuda_on_cpu_swap, .-cuda_on_cpu_swap
)");
void swap(Fiber& from, Fiber& to) { cuda_on_cpu_swap(&from.context, to.context); }
void* fresh_context(char* top, void (*begin)()) {
  void** slots = reinterpret_cast<void**>(top) - 10;  // six registers, the first address, and the alignment that a call leaves
  std::fill(slots, slots + 10, nullptr);
  slots[6] = reinterpret_cast<void*>(begin);
  return slots;
}
#else
ucontext_t* context_of(Fiber& fiber) {
  if (!fiber.context) fiber.context = new ucontext_t;
  return static_cast<ucontext_t*>(fiber.context);
}
void swap(Fiber& from, Fiber& to) { swapcontext(context_of(from), context_of(to)); }
#endif

void switch_to(Fiber& to) {
  Fiber& from = static_cast<Fiber&>(*current);
  current = &to;
#if defined(RACES)
  __tsan_switch_to_fiber(to.tsan, __tsan_switch_to_fiber_no_sync);
#elif defined(BOUNDS)
  const bool is_main = &to == &scheduler;
  __sanitizer_start_switch_fiber(from.state == State::DONE && &from != &scheduler ? nullptr : &from.asan,
                                 is_main ? main_stack : to.stack, is_main ? main_size : STACK);
#endif
  swap(from, to);
#if defined(BOUNDS)
  __sanitizer_finish_switch_fiber(static_cast<Fiber*>(current)->asan, nullptr, nullptr);
#endif
}

void open_barrier() {
  last_votes = votes;
  votes = arrived = 0;
  barrier = nullptr;
  barriers_passed++;
  for (Fiber& fiber : fibers)
    if (fiber.state == State::AT_BARRIER) fiber.state = State::READY;
}

void begin() {
#if defined(BOUNDS)
  const void* stack;
  size_t size;
  __sanitizer_finish_switch_fiber(nullptr, &stack, &size);
  if (!main_stack) main_stack = stack, main_size = size;
#endif
  acquire(&started);
  entry(argument);
  release(&ended);
  Fiber& fiber = self();
  fiber.state = State::DONE;
  if (!fiber.copies.empty()) fail("thread %d ends with %zu asynchronous copies that it never waited for", fiber.number, fiber.copies.size());
  living--;
  switch_to(scheduler);
}

void make_ready(Fiber& fiber) {
  fiber.state = State::READY;
  fiber.group = 0;
  fiber.asan = nullptr;
  // Stacks that begin at equal places of a page would fight for the same lines of the cache.
  char* top = fiber.stack + STACK - fiber.number * 192 % PAGE / 64 * 64;
#if defined(__x86_64__)
  fiber.context = fresh_context(top, begin);
#else
  ucontext_t* context = context_of(fiber);
  getcontext(context);
  context->uc_stack.ss_sp = fiber.stack;
  context->uc_stack.ss_size = static_cast<size_t>(top - fiber.stack);
  makecontext(context, begin, 0);
#endif
}

void create(int count) {
  fibers.resize(static_cast<size_t>(count));
  for (int i = 0; i < count; i++) {
    Fiber& fiber = fibers[static_cast<size_t>(i)];
    fiber.number = i;
    fiber.lane = i % 32;
    const unsigned n = static_cast<unsigned>(i);
    fiber.index = {n % block_size.x, n / block_size.x % block_size.y, n / block_size.x / block_size.y};
    char* pages = static_cast<char*>(mmap(nullptr, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (pages == MAP_FAILED || mprotect(pages, PAGE, PROT_NONE)) fail("no memory for the stacks of %d threads", count);
    fiber.stack = pages + PAGE;
#if defined(RACES)
    fiber.tsan = __tsan_create_fiber(0);
#endif
  }
#if defined(RACES)
  scheduler.tsan = __tsan_get_current_fiber();
#endif
}

[[noreturn]] void report_hang() {
  for (const Fiber& fiber : fibers)
    if (fiber.state != State::DONE) std::fprintf(stderr, "thread %d waits at %s\n", fiber.number, fiber.waits_at);
  fail("deadlock in block (%u, %u, %u): %d of %zu threads wait for others that do not come", block_index.x, block_index.y,
       block_index.z, living, fibers.size());
}

void run_block(std::vector<int>& turns, unsigned& chance) {
  living = static_cast<int>(fibers.size());
  arrived = votes = 0;
  forget_meetings();
  if (shared) std::fill_n(static_cast<volatile unsigned char*>(shared), shared_given, 0xff);  // reads as NaN until it is written
  for (Fiber& fiber : fibers) make_ready(fiber);
  release(&started);
  while (living) {
    bool has_moved = false;
    for (size_t i = turns.size(); chance && i > 1; i--) {
      chance = chance * 1664525u + 1013904223u;
      std::swap(turns[i - 1], turns[(chance >> 8) % i]);
    }
    for (int turn : turns) {
      Fiber& fiber = fibers[static_cast<size_t>(turn)];
      if (fiber.state != State::READY) continue;
      has_moved = true;
      switch_to(fiber);
    }
    if (!has_moved) report_hang();
  }
  acquire(&ended);
}

}  // namespace

void release([[maybe_unused]] void* token) {
#if defined(RACES)
  __tsan_release(token);
#endif
}

void acquire([[maybe_unused]] void* token) {
#if defined(RACES)
  __tsan_acquire(token);
#endif
}

void fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::fputs("cuda_on_cpu: ", stderr);
  std::vfprintf(stderr, format, arguments);
  std::fputs("\n", stderr);
  std::fflush(stderr);
  _exit(3);
}

Fiber& self() { return static_cast<Fiber&>(*current); }

void pause(State state, const char* waits_at) {
  self().state = state;
  self().waits_at = waits_at;
  switch_to(scheduler);
}

void* shared_memory(size_t size) {
  if (size != shared_given) fail("the launch gives %zu bytes of shared memory, the kernel takes %zu", shared_given, size);
  return shared;
}

int meet_block(const char* name, int vote) {
  if (barrier && barrier != name) fail("thread %d comes to %s while others wait at %s", self().number, name, barrier);
  barrier = name;
  votes += vote;
  // Tokens alternate: a thread that runs ahead to the next barrier must not lend its order to one that has yet to leave this.
  void* token = &barrier_tokens[barriers_passed % 2];
  release(token);
  if (++arrived == static_cast<int>(fibers.size())) open_barrier();  // a thread that has ended never comes
  else pause(State::AT_BARRIER, name);
  acquire(token);
  return last_votes;
}

void start_copy(const Copy& copy) {
  self().copies.push_back(copy);
  self().copies.back().group = self().group;
}

void commit_copies() { self().group++; }

bool next_copy_to_land(int groups_left, Copy* copy) {
  auto& copies = self().copies;
  const int newest = self().group - groups_left;
  const auto found = std::find_if(copies.begin(), copies.end(), [=](const Copy& one) { return one.group < newest; });
  if (found == copies.end()) return false;
  *copy = *found;
  copies.erase(found);
  return true;
}

void run_grid(dim3 grid, dim3 block, size_t shared_size, unsigned order, void (*to_enter)(void*), void* with) {
  const unsigned count = block.x * block.y * block.z;
  if (count < 1 || count > 1024) fail("a block of %u threads; there may be 1 to 1024", count);
  grid_size = grid, block_size = block, entry = to_enter, argument = with, shared_given = shared_size;
  shared = shared_size ? std::malloc(shared_size) : nullptr;  // just as large as asked for: what lies behind it is guarded
  current = &scheduler;
  create(static_cast<int>(count));
  std::vector<int> turns(count);
  std::iota(turns.begin(), turns.end(), 0);
  if (order == 1) std::reverse(turns.begin(), turns.end());
  unsigned chance = order > 1 ? order : 0;
  for (unsigned z = 0; z < grid.z; z++)
    for (unsigned y = 0; y < grid.y; y++)
      for (unsigned x = 0; x < grid.x; x++) {
        block_index = {x, y, z};
        run_block(turns, chance);
      }
  std::free(shared);
}

}  // namespace cuda_on_cpu

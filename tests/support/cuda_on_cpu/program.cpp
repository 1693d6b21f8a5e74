// One launch: read from standard input, run, what the buffers then hold written to standard output.
//
//   in   order, grid (3), block (3), shared bytes, length of the name, number of arguments: 32-bit words; the name;
//        each argument: its kind (0 nothing, 1 a scalar, 2 a buffer), offset and size as 64-bit words, then its bytes
//   out  the bytes of every buffer, one after another
//
// A buffer is as large as it is and no larger, so that AddressSanitizer guards both its ends; `offset` is how far from a
// multiple of 256 bytes it begins, as on the machine that it stands for.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "fibers.h"

namespace cuda_on_cpu {
Entry* entries = nullptr;
}

namespace {

using namespace cuda_on_cpu;

void read(void* to, size_t size) {
  if (size && std::fread(to, 1, size, stdin) != size) fail("the launch was cut short");
}

struct Argument {
  uint64_t kind, offset, size;
  char* bytes = nullptr;
};

Argument read_argument() {
  Argument argument{};
  read(&argument, 3 * sizeof(uint64_t));
  if (argument.kind == 0) return argument;
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, argument.offset + argument.size)) fail("no memory for a buffer of %zu bytes", static_cast<size_t>(argument.size));
  argument.bytes = static_cast<char*>(memory) + argument.offset;
  read(argument.bytes, argument.size);
  return argument;
}

const Entry& find(const std::string& name) {
  for (const Entry* entry = entries; entry; entry = entry->next)
    if (name == entry->name) return *entry;
  fail("there is no kernel %s in this build", name.c_str());
}

struct Call { const Entry* entry; void** arguments; };
void call(void* one) {
  const Call& made = *static_cast<Call*>(one);
  made.entry->call(made.entry->kernel, made.arguments);
}

}  // namespace

int main() {
  uint32_t head[10];
  read(head, sizeof head);
  std::string name(head[8], ' ');
  read(name.data(), name.size());
  std::vector<Argument> arguments;
  for (uint32_t i = 0; i < head[9]; i++) arguments.push_back(read_argument());

  const Entry& entry = find(name);
  if (static_cast<int>(arguments.size()) != entry.count) fail("%s takes %d arguments, the launch gives %zu", entry.name, entry.count, arguments.size());
  std::vector<void*> addresses;
  for (size_t i = 0; i < arguments.size(); i++) {
    const Argument& one = arguments[i];
    const size_t size = one.kind == 1 ? static_cast<size_t>(one.size) : sizeof(void*);
    if (size != static_cast<size_t>(entry.sizes[i])) fail("argument %zu of %s is %d bytes wide, the launch gives %zu", i, entry.name, entry.sizes[i], size);
    addresses.push_back(one.kind == 1 ? static_cast<void*>(one.bytes) : const_cast<char**>(&one.bytes));
  }
  Call made{&entry, addresses.data()};
  run_grid({head[1], head[2], head[3]}, {head[4], head[5], head[6]}, head[7], head[0], call, &made);
  for (const Argument& one : arguments)
    if (one.kind == 2) std::fwrite(one.bytes, 1, one.size, stdout);
  std::fflush(stdout);
  std::_Exit(0);
}

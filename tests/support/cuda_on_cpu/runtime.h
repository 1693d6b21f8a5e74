// What a kernel asks of the runtime. (fibers.cpp: threads taking turns; collectives.cpp: instructions of a whole warp.)
#pragma once
#include <cstddef>
#include <cstdint>

struct dim3 { unsigned x = 1, y = 1, z = 1; };

namespace cuda_on_cpu {

struct Thread { dim3 index; int lane; };

extern Thread* current;                       // whose turn it is
extern dim3 block_index, block_size, grid_size;

[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
void* shared_memory(size_t size);             // fails unless the launch gave just as much
int meet_block(const char* name, int vote);   // all threads of the block; answers how many voted
void meet_warp(unsigned mask);                // __syncwarp: the one warp instruction that orders memory
unsigned vote_warp(unsigned mask, bool vote);
uint64_t from_lane(const char* name, unsigned mask, uint64_t value, int source);
enum class Numbers { BFLOAT16, FLOAT16, INT8, UINT8 };
void multiply_add(Numbers numbers, void* sum, const unsigned* left, unsigned right0, unsigned right1);
void deal_matrices(unsigned* parts, const uint16_t* row, bool is_transposed);
float half_to_float(unsigned short bits);
unsigned short float_to_half(float x);

// Copies in flight belong to a thread; they land when it waits for their group.
struct Copy { uint64_t* to; uint64_t low, high; int group; };
void start_copy(const Copy& copy);
void commit_copies();
bool next_copy_to_land(int groups_left, Copy* copy);

// A kernel by the name that a launch calls it, able to unpack its arguments.
struct Entry {
  const char* name;
  void (*kernel)();
  void (*call)(void (*kernel)(), void** arguments);
  int count;
  const int* sizes;
  Entry* next;
};
extern Entry* entries;

}  // namespace cuda_on_cpu

// The CPU half of kernels/common.cuh: the same names, in plain C++ and by the runtime. The kernel's own types come before it.
#pragma once
#define DEVICE inline

#define SHARED(Type, name) Type& name = *static_cast<Type*>(cuda_on_cpu::shared_memory(sizeof(Type)))

inline float fast_exp2(float x) { return exp2f(x); }
inline float fast_reciprocal(float x) { return 1.0f / x; }

inline unsigned short round_to(float x, bfloat16) {
  const unsigned bits = __float_as_uint(x);
  return std::isnan(x) ? 0x7fff : static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline unsigned short round_to(float x, float16) { return cuda_on_cpu::float_to_half(x); }
template <class T>
unsigned pack(float low, float high, T type) { return round_to(low, type) | static_cast<unsigned>(round_to(high, type)) << 16; }
inline float widen(unsigned short bits, float16) { return cuda_on_cpu::half_to_float(bits); }

inline void multiply_add(float (&sum)[4], const unsigned (&left)[4], unsigned right0, unsigned right1, bfloat16) {
  cuda_on_cpu::multiply_add(cuda_on_cpu::Numbers::BFLOAT16, sum, left, right0, right1);
}
inline void multiply_add(float (&sum)[4], const unsigned (&left)[4], unsigned right0, unsigned right1, float16) {
  cuda_on_cpu::multiply_add(cuda_on_cpu::Numbers::FLOAT16, sum, left, right0, right1);
}
inline void multiply_add(int (&sum)[4], const unsigned (&left)[4], unsigned right0, unsigned right1, int8) {
  cuda_on_cpu::multiply_add(cuda_on_cpu::Numbers::INT8, sum, left, right0, right1);
}
inline void multiply_add(int (&sum)[4], const unsigned (&left)[4], unsigned right0, unsigned right1, uint8) {
  cuda_on_cpu::multiply_add(cuda_on_cpu::Numbers::UINT8, sum, left, right0, right1);
}
template <class T>
int dot(int sum, unsigned left, unsigned right, T) {
  for (int i = 0; i < 4; i++) sum += static_cast<decltype(T::bits)>(left >> 8 * i) * static_cast<signed char>(right >> 8 * i);
  return sum;
}

// Each lane reads its own row here, where a sanitizer sees it.
inline void load_matrices(unsigned (&parts)[4], const void* row, bool is_transposed = false) {
  if (reinterpret_cast<uintptr_t>(row) % 16) cuda_on_cpu::fail("load_matrices: a row does not begin at a multiple of 16 bytes");
  uint16_t numbers[8];
  for (int i = 0; i < 8; i++) numbers[i] = static_cast<const volatile uint16_t*>(row)[i];
  cuda_on_cpu::deal_matrices(parts, numbers, is_transposed);
}
inline void load_matrices_transposed(unsigned (&parts)[4], const void* row) { load_matrices(parts, row, true); }

// Until a copy lands, what it will overwrite reads as NaN: a kernel that does not wait is found out.
inline void copy_async(void* to, const void* from, bool is_there) {
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16)
    cuda_on_cpu::fail("copy_async: an address is not a multiple of 16 bytes");
  volatile uint64_t* target = static_cast<volatile uint64_t*>(to);
  const volatile uint64_t* source = static_cast<const volatile uint64_t*>(from);
  const cuda_on_cpu::Copy copy{static_cast<uint64_t*>(to), is_there ? source[0] : 0, is_there ? source[1] : 0, 0};
  target[0] = target[1] = ~0ull;
  cuda_on_cpu::start_copy(copy);
}
inline void commit_copies() { cuda_on_cpu::commit_copies(); }
template <int GROUPS_LEFT>
void await_copies() {
  for (cuda_on_cpu::Copy copy; cuda_on_cpu::next_copy_to_land(GROUPS_LEFT, &copy);) {
    static_cast<volatile uint64_t*>(copy.to)[0] = copy.low;
    static_cast<volatile uint64_t*>(copy.to)[1] = copy.high;
  }
}

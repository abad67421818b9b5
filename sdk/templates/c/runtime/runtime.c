/* Memory and string functions without a C library. An instance serves one batch (an adaptor's several, until it has grown to
 * a few megabytes), so memory is allocated at the top and never freed: this takes less code and less fuel. */
#include "stdlib.h"
#include "string.h"
#include <stdint.h>

#define PAGE 65536u

/* First byte after the program's data and stack; defined by the linker. */
extern unsigned char __heap_base;

static uintptr_t top;

/* Each block is preceded by its size, for realloc. */
void *malloc(size_t size) {
  if (top == 0) top = (uintptr_t)&__heap_base;
  uintptr_t at = (top + 8 + 15) & ~(uintptr_t)15;
  uintptr_t end = at + size;
  uintptr_t have = (uintptr_t)__builtin_wasm_memory_size(0) * PAGE;
  if (end < at) abort();
  if (end > have && __builtin_wasm_memory_grow(0, (end - have + PAGE - 1) / PAGE) == (size_t)-1) abort();
  *(size_t *)(at - 8) = size;
  top = end;
  return (void *)at;
}

void *calloc(size_t count, size_t size) {
  if (size != 0 && count > SIZE_MAX / size) abort();
  void *block = malloc(count * size);
  return memset(block, 0, count * size);
}

void *realloc(void *block, size_t size) {
  if (!block) return malloc(size);
  size_t before = *(size_t *)((uintptr_t)block - 8);
  if (size <= before) return block;
  void *larger = malloc(size);
  return memcpy(larger, block, before);
}

void free(void *block) { (void)block; }

_Noreturn void abort(void) { __builtin_trap(); }

void *memcpy(void *restrict to, const void *restrict from, size_t size) {
  unsigned char *t = to;
  const unsigned char *f = from;
  while (size--) *t++ = *f++;
  return to;
}

void *memmove(void *to, const void *from, size_t size) {
  unsigned char *t = to;
  const unsigned char *f = from;
  if (t < f) return memcpy(to, from, size);
  while (size--) t[size] = f[size];
  return to;
}

void *memset(void *to, int byte, size_t size) {
  unsigned char *t = to;
  while (size--) *t++ = (unsigned char)byte;
  return to;
}

int memcmp(const void *a, const void *b, size_t size) {
  const unsigned char *x = a, *y = b;
  for (; size--; x++, y++) {
    if (*x != *y) return *x < *y ? -1 : 1;
  }
  return 0;
}

size_t strlen(const char *text) {
  size_t length = 0;
  while (text[length]) length++;
  return length;
}

/* The bindings expect an object file with their types; `tribunal plugin build` adds the types of the interfaces instead. */
void __component_type_object_force_link_{{world}}(void) {}

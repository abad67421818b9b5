/* The part of the C library that the bindings need: a plugin is built without one, so that it has no imports. */
#ifndef TRIBUNAL_STDLIB_H
#define TRIBUNAL_STDLIB_H
#include <stddef.h>
void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *block, size_t size);
void free(void *block);
_Noreturn void abort(void);
#endif

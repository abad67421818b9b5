/* The part of the C library that the bindings need: a plugin is built without one, so that it has no imports. */
#ifndef TRIBUNAL_STRING_H
#define TRIBUNAL_STRING_H
#include <stddef.h>
void *memcpy(void *restrict to, const void *restrict from, size_t size);
void *memmove(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);
int memcmp(const void *a, const void *b, size_t size);
size_t strlen(const char *text);
#endif

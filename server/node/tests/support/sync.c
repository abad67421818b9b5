/* Preloaded into a node: the syncs of its log's segments succeed, wait or fail, as the first byte of a file says, which a test may
   change at any time. They write nothing to the disk: what is written survives the end of a process. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile char *order;

__attribute__((constructor)) static void open_order(void) {
  const char *path = getenv("TRIBUNAL_TEST_SYNC");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *mapped = mmap(NULL, 1, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (mapped != MAP_FAILED) order = mapped;
}

static int is_segment(int file) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return strstr(path, "/segments/") != NULL;
}

int fdatasync(int file) {
  if (!order || !is_segment(file)) return (int)syscall(SYS_fdatasync, file);
  while (*order == 'w') usleep(1000);
  if (*order == 'f') {
    errno = EIO;
    return -1;
  }
  return 0;
}

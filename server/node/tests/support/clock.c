/* Preloaded into a node: shifts the system clock that it reads by the nanoseconds in a file, which a test may change at any time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset_ns;

__attribute__((constructor)) static void open_offset(void) {
  const char *path = getenv("TRIBUNAL_TEST_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (mapped != MAP_FAILED) offset_ns = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  int result = (int)syscall(SYS_clock_gettime, clock, time);
  if (result == 0 && offset_ns && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    int64_t shifted = (int64_t)time->tv_sec * 1000000000 + time->tv_nsec + *offset_ns;
    time->tv_sec = shifted / 1000000000;
    time->tv_nsec = shifted % 1000000000;
  }
  return result;
}

// A hollow GPU notes what it was asked for, and reads its switches (hollow.h).
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hollow.h"

struct record {
  char name[24];
  unsigned long long value;
};
static struct record own[count_end];  // where there is no file
static struct record* records = own;
static const char* const names[] = {
#define X(name) #name,
    HOLLOW_COUNTS(X)
#undef X
};
static FILE *log_file, *launch_file;
static unsigned long long at_launch[count_end];  // the counts at the launch before
static __thread int known;                       // whether this thread has called before

static FILE* open_note(const char* folder, const char* name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE* const file = fopen(path, "a");
  if (file) setvbuf(file, NULL, _IOLBF, 0);
  return file;
}
static void map_counts(const char* folder) {
  char path[4096];
  snprintf(path, sizeof path, "%s/counts", folder);
  const int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (file < 0) return;
  if (ftruncate(file, sizeof own) == 0) {
    void* const mapped = mmap(NULL, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) records = mapped;
  }
  close(file);
}
__attribute__((constructor)) static void begin(void) {
  const char* const folder = getenv("HOLLOW_DIR");
  if (folder) {
    log_file = open_note(folder, "log");
    launch_file = open_note(folder, "launches");
    map_counts(folder);
  }
  for (int i = 0; i < count_end; ++i) strncpy(records[i].name, names[i], sizeof records[i].name - 1);
}

void hollow_say(const char* format, ...) {
  if (!log_file) return;
  va_list list;
  va_start(list, format);
  vfprintf(log_file, format, list);
  va_end(list);
}
void hollow_add(enum hollow_count what, long long by) {
  __atomic_fetch_add(&records[what].value, by, __ATOMIC_RELAXED);
}
unsigned long long hollow_count(enum hollow_count what) {
  return __atomic_load_n(&records[what].value, __ATOMIC_RELAXED);
}
void hollow_call(enum hollow_count what, const char* call) {
  hollow_add(what, 1);
  if (known) return;
  known = 1;
  hollow_add(count_threads, 1);
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  hollow_say("thread %d (%s) calls the device: %s\n", gettid(), name, call);
}
void hollow_note_launch(void) {
  if (!launch_file) return;
  flockfile(launch_file);
  for (int i = 0; i < count_end; ++i) {
    const unsigned long long now = hollow_count(i);
    if (now != at_launch[i] && i != count_bytes && i != count_graphs)
      fprintf(launch_file, "%s=%llu ", names[i], now - at_launch[i]);
    at_launch[i] = now;
  }
  fputc('\n', launch_file);
  funlockfile(launch_file);
}
int hollow_is(const char* name) {
  const char* const folder = getenv("HOLLOW_DIR");
  if (!folder) return 0;
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return access(path, F_OK) == 0;
}

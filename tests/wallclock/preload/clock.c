// Shifts what programs that use the C library see as the wall clock by what the file named in FLINKNDB_TEST_CLOCK
// says. The monotonic clock, and with it timers and waits, stays as it is.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift;

__attribute__((constructor)) static void map_clock(void) {
    const char *name = getenv("FLINKNDB_TEST_CLOCK");
    if (!name) return;
    int file = open(name, O_RDONLY | O_CLOEXEC);
    void *memory = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        perror(name);
        abort();
    }
    close(file);
    shift = memory;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *shift;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int result = syscall(SYS_gettimeofday, now, zone);
    if (result == 0 && shift && now) now->tv_sec += *shift;
    return result;
}

time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}

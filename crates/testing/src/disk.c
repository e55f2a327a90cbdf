/* A disk that fails once, for tests: as a preloaded library, it makes the n-th sync, write or read
 * of a store's files fail, or kills the process in the middle of it. Environment variables select
 * the fault; counting starts with the process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long syncs, writes, reads, steps;

static long wanted(const char *name) {
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

static int is_store(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return strstr(path, "store.db") != NULL;
}

static int fails(int file, const char *name, atomic_long *count) {
    long which = wanted(name);
    return which && is_store(file) && atomic_fetch_add(count, 1) + 1 == which;
}

static void end(void) {
    kill(getpid(), SIGKILL);
    pause();
}

static int synced(int file, int (*real)(int)) {
    if (fails(file, "KILL_STEP", &steps))
        end();
    if (fails(file, "FAIL_SYNC", &syncs)) {
        errno = EIO;
        return -1;
    }
    return real(file);
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return synced(file, real);
}

int fsync(int file) {
    static int (*real)(int);
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return synced(file, real);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real)
        real = (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    if (fails(file, "KILL_STEP", &steps)) {
        real(file, bytes, count / 2, at);
        end();
    }
    if (fails(file, "FULL_WRITE", &writes)) {
        errno = ENOSPC;
        return -1;
    }
    return real(file, bytes, count, at);
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t at) {
    return pwrite64(file, bytes, count, at);
}

/* Not EIO, which SQLite treats as a damaged file: a disk that is unavailable for a moment. */
ssize_t pread64(int file, void *bytes, size_t count, off64_t at) {
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (!real)
        real = (ssize_t (*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    if (fails(file, "FAIL_READ", &reads)) {
        errno = ETIMEDOUT;
        return -1;
    }
    return real(file, bytes, count, at);
}

ssize_t pread(int file, void *bytes, size_t count, off_t at) {
    return pread64(file, bytes, count, at);
}

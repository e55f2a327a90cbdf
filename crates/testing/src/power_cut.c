/* A disk that loses power, for tests: as a preloaded library, it remembers what the files of one
 * folder contained at their last sync. At the n-th write or sync it undoes a random half of the
 * sectors that were written since, and kills the process. New and removed files are undone in the
 * same way, unless their folder was synced.
 *
 * Environment variables: POWER_CUT_FOLDER (real path), POWER_CUT_STEP (n, counted from the start of
 * the process; 0 or unset: never), POWER_CUT_SEED, POWER_CUT_LOST (an existing folder on the same
 * file system that keeps removed files until the removal is synced).
 *
 * Not modelled: writev, copy_file_range, renames, and files that are written through memory maps
 * (SQLite's `-shm`, which SQLite builds anew after a crash, is ignored).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { SECTOR = 512, FILES_MAX = 256, PATH_LENGTH = 4096 };

/* A sector as of the last sync of its file; sectors beyond the end of the file are zero. */
struct sector {
    off64_t index;
    unsigned char bytes[SECTOR];
};

/* What is not synced yet of one file. */
struct unsynced_file {
    dev_t device;
    ino_t inode;
    char path[PATH_LENGTH];
    int is_new;
    int is_dirty;
    off64_t synced_size;
    struct sector *sectors;
    size_t count, capacity;
    /* Hash table of positions in `sectors`, plus one; 0 is free. */
    uint32_t *slots;
    size_t slot_count;
};

struct removed_file {
    char path[PATH_LENGTH], kept_as[PATH_LENGTH];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct unsynced_file files[FILES_MAX];
static size_t file_count;
static struct removed_file removed[FILES_MAX];
static size_t removed_count, kept_names;
static long steps;

static const char *folder, *lost_folder;
static long cut_step;
static uint64_t random_state;

static ssize_t (*real_pwrite)(int, const void *, size_t, off64_t);
static ssize_t (*real_pread)(int, void *, size_t, off64_t);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_ftruncate)(int, off64_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_unlink)(const char *);
static int (*real_open)(const char *, int, ...);

__attribute__((constructor)) static void prepare(void) {
    real_pwrite = (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    real_pread = (ssize_t (*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    real_write = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    real_ftruncate = (int (*)(int, off64_t))dlsym(RTLD_NEXT, "ftruncate64");
    real_fsync = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    real_unlink = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
    real_open = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    folder = getenv("POWER_CUT_FOLDER");
    lost_folder = getenv("POWER_CUT_LOST");
    cut_step = getenv("POWER_CUT_STEP") ? atol(getenv("POWER_CUT_STEP")) : 0;
    random_state = getenv("POWER_CUT_SEED") ? strtoull(getenv("POWER_CUT_SEED"), NULL, 10) : 1;
    random_state = random_state * 0x9e3779b97f4a7c15u + 1;
    if (!folder || !lost_folder)
        cut_step = 0;
}

static uint64_t next_random(void) {
    random_state += 0x9e3779b97f4a7c15u;
    uint64_t mixed = random_state;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
}

static int is_kept(void) { return next_random() & 1; }

static int ends_with(const char *text, const char *end) {
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static int is_in_folder(const char *path) {
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && path[length] == '/' && !ends_with(path, "-shm");
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_LENGTH - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return 1;
}

/* The state of a regular file of the folder, or NULL. */
static struct unsynced_file *file_of(int fd) {
    struct stat64 status;
    if (fstat64(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return NULL;
    for (size_t i = 0; i < file_count; i++)
        if (files[i].inode == status.st_ino && files[i].device == status.st_dev)
            return &files[i];
    char path[PATH_LENGTH];
    if (!path_of(fd, path) || !is_in_folder(path))
        return NULL;
    if (file_count == FILES_MAX)
        abort();
    struct unsynced_file *file = &files[file_count++];
    memset(file, 0, sizeof *file);
    file->device = status.st_dev;
    file->inode = status.st_ino;
    strcpy(file->path, path);
    return file;
}

static size_t slot_of(const struct unsynced_file *file, off64_t index) {
    size_t slot = (uint64_t)index * 0x9e3779b97f4a7c15u % file->slot_count;
    while (file->slots[slot] && file->sectors[file->slots[slot] - 1].index != index)
        slot = (slot + 1) % file->slot_count;
    return slot;
}

static void grow(struct unsynced_file *file) {
    file->capacity = file->capacity ? file->capacity * 2 : 64;
    file->sectors = realloc(file->sectors, file->capacity * sizeof *file->sectors);
    free(file->slots);
    file->slot_count = file->capacity * 2 + 1;
    file->slots = calloc(file->slot_count, sizeof *file->slots);
    if (!file->sectors || !file->slots)
        abort();
    for (size_t i = 0; i < file->count; i++)
        file->slots[slot_of(file, file->sectors[i].index)] = (uint32_t)i + 1;
}

static void mark_dirty(struct unsynced_file *file, int fd) {
    struct stat64 status;
    if (file->is_dirty)
        return;
    file->is_dirty = 1;
    file->synced_size = fstat64(fd, &status) == 0 ? status.st_size : 0;
}

/* Keeps what the sectors contained at the last sync, before they are written. */
static void keep_sectors(struct unsynced_file *file, int fd, off64_t from, off64_t to) {
    mark_dirty(file, fd);
    for (off64_t index = from / SECTOR; index * SECTOR < to; index++) {
        if (file->count == file->capacity)
            grow(file);
        size_t slot = slot_of(file, index);
        if (file->slots[slot])
            continue;
        struct sector *sector = &file->sectors[file->count++];
        file->slots[slot] = (uint32_t)file->count;
        sector->index = index;
        memset(sector->bytes, 0, SECTOR);
        /* What lies beyond the synced size was written since, and counts as zero. */
        off64_t start = index * SECTOR;
        size_t length = file->synced_size > start + SECTOR ? SECTOR
                        : file->synced_size > start        ? (size_t)(file->synced_size - start)
                                                           : 0;
        if (length && real_pread(fd, sector->bytes, length, start) < 0)
            abort();
    }
}

static void forget_sectors(struct unsynced_file *file) {
    file->is_dirty = 0;
    file->count = 0;
    if (file->slots)
        memset(file->slots, 0, file->slot_count * sizeof *file->slots);
}

/* Undoes a random part of what was not synced. */
static void lose_unsynced(struct unsynced_file *file) {
    if (file->is_new && !is_kept()) {
        real_unlink(file->path);
        return;
    }
    if (!file->is_dirty)
        return;
    int fd = real_open(file->path, O_RDWR);
    struct stat64 status;
    if (fd < 0)
        return;
    for (size_t i = 0; i < file->count; i++) {
        const struct sector *sector = &file->sectors[i];
        if (!is_kept() && real_pwrite(fd, sector->bytes, SECTOR, sector->index * SECTOR) != SECTOR)
            abort();
    }
    if (fstat64(fd, &status) != 0)
        abort();
    off64_t size = status.st_size, synced = file->synced_size;
    switch (next_random() % 3) {
    case 0:
        size = synced;
        break;
    case 1:
        if (size > synced)
            size = synced + (off64_t)(next_random() % (uint64_t)(size - synced));
        break;
    }
    if (real_ftruncate(fd, size) != 0)
        abort();
    close(fd);
}

static void cut_power(void) {
    for (size_t i = 0; i < removed_count; i++)
        if (!is_kept() && access(removed[i].path, F_OK) != 0)
            rename(removed[i].kept_as, removed[i].path);
    for (size_t i = 0; i < file_count; i++)
        lose_unsynced(&files[i]);
    kill(getpid(), SIGKILL);
    pause();
}

/* Counts a write or sync. Returns whether the power is cut at it. */
static int is_last_step(void) { return ++steps == cut_step; }

static ssize_t write_at(int fd, const void *bytes, size_t count, off64_t at, int is_positioned) {
    if (!cut_step)
        return is_positioned ? real_pwrite(fd, bytes, count, at) : real_write(fd, bytes, count);
    pthread_mutex_lock(&lock);
    struct unsynced_file *file = file_of(fd);
    if (file) {
        if (!is_positioned)
            at = fcntl(fd, F_GETFL) & O_APPEND ? lseek64(fd, 0, SEEK_END) : lseek64(fd, 0, SEEK_CUR);
        keep_sectors(file, fd, at, at + (off64_t)count);
    }
    ssize_t written = is_positioned ? real_pwrite(fd, bytes, count, at) : real_write(fd, bytes, count);
    if (file && is_last_step())
        cut_power();
    pthread_mutex_unlock(&lock);
    return written;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    return write_at(fd, bytes, count, at, 1);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    return write_at(fd, bytes, count, at, 1);
}

ssize_t write(int fd, const void *bytes, size_t count) { return write_at(fd, bytes, count, 0, 0); }

int ftruncate64(int fd, off64_t size) {
    if (!cut_step)
        return real_ftruncate(fd, size);
    pthread_mutex_lock(&lock);
    struct unsynced_file *file = file_of(fd);
    struct stat64 status;
    if (file && fstat64(fd, &status) == 0) {
        mark_dirty(file, fd);
        if (size < status.st_size)
            keep_sectors(file, fd, size, status.st_size);
    }
    int result = real_ftruncate(fd, size);
    if (file && is_last_step())
        cut_power();
    pthread_mutex_unlock(&lock);
    return result;
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

/* New and removed files of a synced folder stay so. */
static void sync_folder(int fd) {
    char path[PATH_LENGTH];
    if (!path_of(fd, path) || strcmp(path, folder) != 0)
        return;
    for (size_t i = 0; i < file_count; i++)
        files[i].is_new = 0;
    for (size_t i = 0; i < removed_count; i++)
        real_unlink(removed[i].kept_as);
    removed_count = 0;
}

/* The process dies, the machine does not: what is synced needs no real sync. */
static int sync_file(int fd, int (*real_sync)(int)) {
    if (!cut_step)
        return real_sync(fd);
    pthread_mutex_lock(&lock);
    struct unsynced_file *file = file_of(fd);
    if (file) {
        if (is_last_step())
            cut_power();
        forget_sectors(file);
    } else {
        sync_folder(fd);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

int fsync(int fd) { return sync_file(fd, real_fsync); }

int fdatasync(int fd) { return sync_file(fd, real_fdatasync); }

int unlink(const char *path) {
    if (!cut_step || !is_in_folder(path))
        return real_unlink(path);
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < file_count; i++)
        if (strcmp(files[i].path, path) == 0) {
            free(files[i].sectors);
            free(files[i].slots);
            files[i] = files[--file_count];
            break;
        }
    if (removed_count < FILES_MAX) {
        struct removed_file *kept = &removed[removed_count];
        snprintf(kept->path, PATH_LENGTH, "%s", path);
        int length = snprintf(kept->kept_as, PATH_LENGTH, "%s/%zu", lost_folder, kept_names++);
        if (length < PATH_LENGTH && link(path, kept->kept_as) == 0)
            removed_count++;
    }
    int result = real_unlink(path);
    pthread_mutex_unlock(&lock);
    return result;
}

static int open_file(const char *path, int flags, mode_t mode) {
    if (!cut_step || !(flags & O_CREAT) || !is_in_folder(path))
        return real_open(path, flags, mode);
    pthread_mutex_lock(&lock);
    int is_new = access(path, F_OK) != 0;
    int fd = real_open(path, flags, mode);
    struct unsynced_file *file = fd >= 0 ? file_of(fd) : NULL;
    if (file && is_new)
        file->is_new = 1;
    pthread_mutex_unlock(&lock);
    return fd;
}

static mode_t mode_of(int flags, va_list arguments) {
    return flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
}

int open64(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return open_file(path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return open_file(path, flags, mode);
}

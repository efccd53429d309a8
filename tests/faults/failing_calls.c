/* Loaded before the C library (LD_PRELOAD): system calls that fail when a test says so.
 *
 * FAILING_CALL="accept4 24 3 5": in this process the 3rd to 7th call of accept4 fails with errno 24.
 * FAILING_CALL_DONE=FILE: FILE is made when the first one fails. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_long calls;

/* The errno with which this call fails; 0: it goes to the system. */
static int failure_of(const char* name) {
  const char* wish = getenv("FAILING_CALL");
  char call[64];
  int number = 0;
  long first = 0, count = 0;
  if (!wish || sscanf(wish, "%63s %d %ld %ld", call, &number, &first, &count) != 4) return 0;
  if (strcmp(call, name) != 0) return 0;
  const long at = atomic_fetch_add(&calls, 1) + 1;
  if (at < first || at >= first + count) return 0;
  const char* done = getenv("FAILING_CALL_DONE");
  if (done) syscall(SYS_close, (int)syscall(SYS_open, done, O_CREAT | O_WRONLY, 0600));
  return number;
}

#define FAIL_IF_ASKED(name)             \
  const int failure = failure_of(name); \
  if (failure != 0) return errno = failure, -1

/* FAILS(type of the result, name, parameters with types, their names) */
#define FAILS(type, name, parameters, arguments)         \
  type name parameters {                                 \
    static type(*next) parameters;                       \
    FAIL_IF_ASKED(#name);                                \
    if (!next) *(void**)(&next) = dlsym(RTLD_NEXT, #name); \
    return next arguments;                               \
  }

FAILS(int, poll, (struct pollfd * list, nfds_t count, int ms), (list, count, ms))
FAILS(int, accept4, (int fd, struct sockaddr* from, socklen_t* size, int flags),
      (fd, from, size, flags))
FAILS(ssize_t, recv, (int fd, void* to, size_t size, int flags), (fd, to, size, flags))
FAILS(ssize_t, send, (int fd, const void* from, size_t size, int flags), (fd, from, size, flags))
FAILS(ssize_t, read, (int fd, void* to, size_t size), (fd, to, size))
FAILS(ssize_t, write, (int fd, const void* from, size_t size), (fd, from, size))
FAILS(int, fsync, (int fd), (fd))
FAILS(int, close, (int fd), (fd))
FAILS(int, rename, (const char* from, const char* to), (from, to))
FAILS(int, memfd_create, (const char* name, unsigned flags), (name, flags))
FAILS(int, eventfd, (unsigned value, int flags), (value, flags))
FAILS(int, listen, (int fd, int backlog), (fd, backlog))
FAILS(int, socket, (int domain, int kind, int protocol), (domain, kind, protocol))
FAILS(int, waitid, (idtype_t kind, id_t id, siginfo_t* info, int options),
      (kind, id, info, options))
FAILS(pid_t, waitpid, (pid_t id, int* status, int options), (id, status, options))

static char* failing_mkdtemp(char* name) {
  static char* (*next)(char*);
  if (!next) *(void**)(&next) = dlsym(RTLD_NEXT, "mkdtemp");
  return next(name);
}
char* mkdtemp(char* name) {
  const int failure = failure_of("mkdtemp");
  return failure != 0 ? errno = failure, NULL : failing_mkdtemp(name);
}

/* Gives its errno back. */
int posix_spawn(pid_t* id, const char* file, const posix_spawn_file_actions_t* actions,
                const posix_spawnattr_t* attributes, char* const words[], char* const environment[]) {
  static int (*next)(pid_t*, const char*, const posix_spawn_file_actions_t*,
                     const posix_spawnattr_t*, char* const[], char* const[]);
  const int failure = failure_of("posix_spawn");
  if (failure != 0) return failure;
  if (!next) *(void**)(&next) = dlsym(RTLD_NEXT, "posix_spawn");
  return next(id, file, actions, attributes, words, environment);
}

int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t* actions, int from, int to) {
  static int (*next)(posix_spawn_file_actions_t*, int, int);
  const int failure = failure_of("posix_spawn_file_actions_adddup2");
  if (failure != 0) return failure;
  if (!next) *(void**)(&next) = dlsym(RTLD_NEXT, "posix_spawn_file_actions_adddup2");
  return next(actions, from, to);
}

static int opened(const char* name, int flags, mode_t mode) {
  FAIL_IF_ASKED("open");
  return (int)syscall(SYS_openat, AT_FDCWD, name, flags, mode);
}
int open(const char* name, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
  va_end(more);
  return opened(name, flags, mode);
}
int open64(const char* name, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
  va_end(more);
  return opened(name, flags, mode);
}

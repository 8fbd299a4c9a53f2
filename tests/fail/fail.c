/* Has one call of a program fail: an allocation, or a call to the system. Preloaded (LD_PRELOAD), and steered by the
 * environment:
 *
 *   FLYTUNE_FAIL_ALLOC=N    the Nth allocation gives NULL and ENOMEM; the first is 1
 *   FLYTUNE_FAIL_IO=N       the Nth call to the system fails
 *   FLYTUNE_FAIL_CALL=NAME  only calls of that function are counted, and failed
 *   FLYTUNE_FAIL_VARIANT=V  which of the errors that the call can give in earnest; else its first
 *   FLYTUNE_FAIL_ERRNO=E    that number instead
 *   FLYTUNE_FAIL_ON=1       and so does every later one of that kind
 *   FLYTUNE_FAIL_COUNT=FILE when a call is failed, a line is added: "hit NAME PID KIND N CALL ERRNO FRAME...", where a frame is
 *                           OBJECT+OFFSET as addr2line takes them. At its end the program adds: "NAME PID alloc N io N",
 *                           how many there were, and "hit" if one was failed
 *   FLYTUNE_FAIL_PROGRAM=P  only in the program of that name; else in every one that inherits the environment
 *   FLYTUNE_FAIL_AFTER=FILE counted only from when that file is there
 *
 * Libraries are met as well (libuv, LMDB, jansson), as they call the C library too. What the C library calls inside itself
 * (such as the write under fflush) is not seen: fopen, fwrite, fflush and fclose count as calls instead. Nor is syscall(),
 * by which libuv calls statx and copy_file_range. Calls that nothing is to be done about (close, munmap), or that fail only for
 * a mistake in the program (fcntl's flags, sigaction), are left alone. Threads share the counts, and so do children that are
 * forked, until they execute another program. */
/* Both names of each call are wanted: the plain one, and the one for large files. */
#undef _FILE_OFFSET_BITS
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

enum kind { ALLOC, IO, KINDS };
enum { FRAMES = 24, ERRORS = 5, LINE = 4096 };

/* What a call can fail with; the rest is 0. */
typedef const int errors[ERRORS];

static const char *const kind_word[KINDS] = {"alloc", "io"};

/* In memory that forked children share. */
struct counts {
	atomic_ulong number[KINDS];
	atomic_bool hit;
};

static struct counts own, *counts = &own;
static unsigned long fails_at[KINDS]; /* this one; 0: none */
static atomic_bool started;
static bool is_on, is_ours;
static int with_errno;
static unsigned long variant;
static const char *after, *only, *count_path;
static __thread bool inside; /* what is called from here is not the program's */

static unsigned long number_of(const char *name)
{
	const char *text = getenv(name);

	return text == NULL ? 0 : strtoul(text, NULL, 10);
}

__attribute__((constructor)) static void begin(void)
{
	const char *program = getenv("FLYTUNE_FAIL_PROGRAM");
	void *frame[1];
	long at;

	fails_at[ALLOC] = number_of("FLYTUNE_FAIL_ALLOC");
	fails_at[IO] = number_of("FLYTUNE_FAIL_IO");
	is_on = number_of("FLYTUNE_FAIL_ON") != 0;
	with_errno = (int)number_of("FLYTUNE_FAIL_ERRNO");
	variant = number_of("FLYTUNE_FAIL_VARIANT");
	after = getenv("FLYTUNE_FAIL_AFTER");
	only = getenv("FLYTUNE_FAIL_CALL");
	count_path = getenv("FLYTUNE_FAIL_COUNT");
	at = syscall(
	        SYS_mmap, NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0L);
	if (at != -1)
		counts = (struct counts *)(uintptr_t)at;
	(void)backtrace(frame, 1); /* loads what it needs */
	started = after == NULL;
	is_ours = program == NULL || strcmp(program, program_invocation_short_name) == 0;
}

/* A line for whoever counts. */
static void add_line(const char *line, size_t length)
{
	int file = (int)syscall(
	        SYS_openat, AT_FDCWD, count_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

	if (file >= 0) {
		(void)syscall(SYS_write, file, line, length);
		(void)syscall(SYS_close, file);
	}
}

__attribute__((destructor)) static void tell(void)
{
	char line[256];

	if (!is_ours || count_path == NULL)
		return;
	inside = true;
	add_line(line,
	        (size_t)snprintf(line, sizeof line, "%s %d alloc %lu io %lu%s\n",
	                program_invocation_short_name, (int)getpid(), counts->number[ALLOC],
	                counts->number[IO], counts->hit ? " hit" : ""));
	inside = false;
}

/* Which call it was, and who called it. */
static void tell_hit(enum kind kind, unsigned long number, const char *call, int error)
{
	void *frame[FRAMES];
	char line[LINE];
	size_t length;
	int frames;

	counts->hit = true;
	if (count_path == NULL)
		return;
	frames = backtrace(frame, FRAMES);
	length = (size_t)snprintf(line, sizeof line, "hit %s %d %s %lu %s %d", program_invocation_short_name,
	        (int)syscall(SYS_getpid), kind_word[kind], number, call, error);
	for (int i = 0; i < frames && length < sizeof line - 512; i++) {
		Dl_info where;

		if (dladdr(frame[i], &where) != 0 && where.dli_fname != NULL)
			length += (size_t)snprintf(line + length, 512, " %.400s+%#lx", where.dli_fname,
			        (unsigned long)((uintptr_t)frame[i] - (uintptr_t)where.dli_fbase));
	}
	line[length++] = '\n';
	add_line(line, length);
}

static bool has_started(void)
{
	if (!started && syscall(SYS_faccessat, AT_FDCWD, after, F_OK) == 0)
		started = true;
	return started;
}

/* Reading and writing fail in other ways where the descriptor is a socket, or a pipe or an eventfd: these give errors that
 * mean something to who polls (libuv), or none. */
static const int *errors_of(int file, const int *of_file, const int *of_socket)
{
	static errors of_pipe = {EINTR};
	struct stat status;

	if (syscall(SYS_fstat, file, &status) != 0)
		return of_file;
	if (S_ISSOCK(status.st_mode))
		return of_socket;
	/* What has no name, as an eventfd, has no type either. */
	return S_ISFIFO(status.st_mode) || (status.st_mode & S_IFMT) == 0 ? of_pipe : of_file;
}

/* Whether this call is the one; then errno says why. `file` is -1 where it says nothing of how the call can fail. */
static bool fails_on(enum kind kind, const char *call, const int *can_be, int file, const int *of_socket)
{
	int saved = errno, error;
	unsigned long number, known = 0;
	bool fail;

	if (!is_ours || inside || !has_started() || (only != NULL && strcmp(call, only) != 0)) {
		errno = saved;
		return false;
	}
	number = ++counts->number[kind];
	fail = fails_at[kind] != 0 && (number == fails_at[kind] || (is_on && number > fails_at[kind]));
	if (!fail) {
		errno = saved;
		return false;
	}
	if (file >= 0)
		can_be = errors_of(file, can_be, of_socket);
	while (known < ERRORS && can_be[known] != 0)
		known++;
	error = with_errno != 0 && kind == IO ? with_errno : known > 0 ? can_be[variant % known] : EIO;
	inside = true;
	tell_hit(kind, number, call, error);
	/* These say that the other side is gone: then it is. */
	if (file >= 0 && (error == EPIPE || error == ECONNRESET))
		(void)syscall(SYS_shutdown, file, SHUT_RDWR);
	inside = false;
	errno = error;
	return true;
}

static bool fails(enum kind kind, const char *call, errors can_be)
{
	return fails_on(kind, call, can_be, -1, NULL);
}

/* ---- allocations ---- */

static errors no_memory = {ENOMEM};

void *malloc(size_t size)
{
	return fails(ALLOC, __func__, no_memory) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	return fails(ALLOC, __func__, no_memory) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
	return fails(ALLOC, __func__, no_memory) ? NULL : __libc_realloc(memory, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return fails(ALLOC, __func__, no_memory) ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
	if (fails(ALLOC, __func__, no_memory))
		return ENOMEM;
	*memory = __libc_memalign(alignment, size);
	return *memory == NULL ? ENOMEM : 0;
}

/* ---- calls to the system ---- */

/* The C library's function of that name. */
#define NEXT(type, name, parameters)                                                  \
	static type(*next_##name) parameters;                                         \
	__attribute__((constructor)) static void find_##name(void)                    \
	{                                                                             \
		next_##name = (type(*) parameters)(uintptr_t)dlsym(RTLD_NEXT, #name); \
	}

/* `fault` is what it returns where it fails. */
#define CALL(type, fault, name, parameters, arguments, ...)                              \
	NEXT(type, name, parameters)                                                     \
	type name parameters                                                             \
	{                                                                                \
		static errors can_be = {__VA_ARGS__};                                    \
                                                                                         \
		if (next_##name == NULL)                                                 \
			find_##name();                                                   \
		return fails(IO, #name, can_be) ? (type)(fault) : next_##name arguments; \
	}

/* The same for what reads (or writes) `file`. */
#define MOVE(type, of_socket, name, parameters, arguments, ...)                                   \
	NEXT(type, name, parameters)                                                              \
	type name parameters                                                                      \
	{                                                                                         \
		static errors can_be = {__VA_ARGS__};                                             \
                                                                                                  \
		if (next_##name == NULL)                                                          \
			find_##name();                                                            \
		return fails_on(IO, #name, can_be, file, of_socket) ? -1 : next_##name arguments; \
	}

static errors receive_errors = {ECONNRESET, EINTR, ENOMEM},
              send_errors = {EPIPE, EINTR, ENOBUFS, EAGAIN, ENOMEM};

MOVE(ssize_t, receive_errors, read, (int file, void *to, size_t size), (file, to, size), EIO, EINTR, ENOMEM)
MOVE(ssize_t, receive_errors, readv, (int file, const struct iovec *parts, int count), (file, parts, count),
        EIO, EINTR)
CALL(ssize_t, -1, pread, (int file, void *to, size_t size, off_t at), (file, to, size, at), EIO)
CALL(ssize_t, -1, pread64, (int file, void *to, size_t size, off64_t at), (file, to, size, at), EIO)
MOVE(ssize_t, send_errors, write, (int file, const void *from, size_t size), (file, from, size), EIO, EINTR,
        ENOSPC)
MOVE(ssize_t, send_errors, writev, (int file, const struct iovec *parts, int count), (file, parts, count),
        EIO, EINTR, ENOSPC)
CALL(ssize_t, -1, pwrite, (int file, const void *from, size_t size, off_t at), (file, from, size, at), EIO,
        ENOSPC)
CALL(ssize_t, -1, pwrite64, (int file, const void *from, size_t size, off64_t at), (file, from, size, at),
        EIO, ENOSPC)
CALL(ssize_t, -1, pwritev, (int file, const struct iovec *parts, int count, off_t at),
        (file, parts, count, at), EIO, ENOSPC)
CALL(ssize_t, -1, pwritev64, (int file, const struct iovec *parts, int count, off64_t at),
        (file, parts, count, at), EIO, ENOSPC)
CALL(ssize_t, -1, sendfile64, (int to, int from, off64_t *at, size_t size), (to, from, at, size), EIO, ENOMEM)
MOVE(ssize_t, receive_errors, recv, (int file, void *to, size_t size, int flags), (file, to, size, flags),
        ECONNRESET, EINTR, ENOMEM)
MOVE(ssize_t, receive_errors, recvmsg, (int file, struct msghdr *message, int flags), (file, message, flags),
        ECONNRESET, EINTR, ENOMEM)
MOVE(ssize_t, send_errors, send, (int file, const void *from, size_t size, int flags),
        (file, from, size, flags), EPIPE, EINTR, ENOBUFS, EAGAIN, ENOMEM)
MOVE(ssize_t, send_errors, sendmsg, (int file, const struct msghdr *message, int flags),
        (file, message, flags), EPIPE, EINTR, ENOBUFS, EAGAIN, ENOMEM)
CALL(int, -1, socket, (int domain, int type, int protocol), (domain, type, protocol), EMFILE, ENFILE, ENOMEM)
CALL(int, -1, socketpair, (int domain, int type, int protocol, int pair[2]), (domain, type, protocol, pair),
        EMFILE, ENOMEM)
CALL(int, -1, bind, (int file, __CONST_SOCKADDR_ARG address, socklen_t size), (file, address, size),
        EADDRINUSE, ENOMEM, EIO)
CALL(int, -1, listen, (int file, int backlog), (file, backlog), ENOMEM)
CALL(int, -1, connect, (int file, __CONST_SOCKADDR_ARG address, socklen_t size), (file, address, size),
        ECONNREFUSED, EAGAIN, EINTR, ENOMEM)
CALL(int, -1, accept4, (int file, __SOCKADDR_ARG address, socklen_t *size, int flags),
        (file, address, size, flags), EMFILE, ECONNABORTED, EINTR, ENOMEM)
CALL(int, -1, getsockopt, (int file, int level, int option, void *value, socklen_t *size),
        (file, level, option, value, size), ENOBUFS, ENOMEM)
CALL(int, -1, setsockopt, (int file, int level, int option, const void *value, socklen_t size),
        (file, level, option, value, size), ENOBUFS, ENOMEM)
CALL(int, -1, pipe2, (int pair[2], int flags), (pair, flags), EMFILE, ENFILE, ENOMEM)
CALL(int, -1, dup2, (int from, int to), (from, to), EINTR, EBUSY)
CALL(int, -1, dup3, (int from, int to, int flags), (from, to, flags), EINTR, EBUSY)
CALL(int, -1, epoll_create1, (int flags), (flags), EMFILE, ENOMEM)
CALL(int, -1, epoll_wait, (int epoll, struct epoll_event *events, int most, int ms),
        (epoll, events, most, ms), EINTR)
CALL(int, -1, epoll_pwait, (int epoll, struct epoll_event *events, int most, int ms, const sigset_t *mask),
        (epoll, events, most, ms, mask), EINTR)
CALL(int, -1, poll, (struct pollfd * files, nfds_t count, int ms), (files, count, ms), EINTR, ENOMEM)
CALL(int, -1, eventfd, (unsigned int count, int flags), (count, flags), EMFILE, ENOMEM)
CALL(int, -1, timerfd_create, (int clock, int flags), (clock, flags), EMFILE, ENOMEM)
CALL(int, -1, inotify_init1, (int flags), (flags), EMFILE, ENOMEM)
CALL(int, -1, inotify_add_watch, (int file, const char *path, uint32_t mask), (file, path, mask), ENOSPC,
        ENOMEM)
CALL(int, -1, memfd_create, (const char *name, unsigned int flags), (name, flags), EMFILE, ENOMEM)
CALL(int, -1, flock, (int file, int how), (file, how), ENOLCK, EINTR)
CALL(int, -1, fsync, (int file), (file), EIO, ENOSPC)
CALL(int, -1, fdatasync, (int file), (file), EIO, ENOSPC)
CALL(int, -1, msync, (void *at, size_t size, int flags), (at, size, flags), EIO, ENOMEM)
CALL(int, -1, syncfs, (int file), (file), EIO)
CALL(int, -1, ftruncate, (int file, off_t size), (file, size), EIO, ENOSPC)
CALL(int, -1, ftruncate64, (int file, off64_t size), (file, size), EIO, ENOSPC)
CALL(int, -1, fchmod, (int file, mode_t mode), (file, mode), EIO, EPERM, EROFS)
CALL(int, -1, chmod, (const char *path, mode_t mode), (path, mode), EIO, EPERM, EROFS)
CALL(int, -1, chown, (const char *path, uid_t user, gid_t group), (path, user, group), EIO, EPERM)
CALL(int, -1, fchown, (int file, uid_t user, gid_t group), (file, user, group), EIO, EPERM)
CALL(int, -1, rename, (const char *from, const char *to), (from, to), EIO, ENOSPC, EROFS)
CALL(int, -1, renameat, (int in, const char *from, int at, const char *to), (in, from, at, to), EIO, ENOSPC,
        EROFS)
CALL(int, -1, link, (const char *from, const char *to), (from, to), EIO, ENOSPC)
CALL(int, -1, linkat, (int in, const char *from, int at, const char *to, int flags),
        (in, from, at, to, flags), EIO, ENOSPC)
CALL(int, -1, symlink, (const char *what, const char *path), (what, path), EIO, ENOSPC)
CALL(int, -1, unlink, (const char *path), (path), EIO, EROFS)
CALL(int, -1, unlinkat, (int folder, const char *path, int flags), (folder, path, flags), EIO, EROFS)
CALL(int, -1, rmdir, (const char *path), (path), EIO, EROFS)
CALL(int, -1, mkdir, (const char *path, mode_t mode), (path, mode), EIO, ENOSPC, EROFS)
CALL(int, -1, mkdirat, (int folder, const char *path, mode_t mode), (folder, path, mode), EIO, ENOSPC, EROFS)
CALL(int, -1, mkostemp, (char *path, int flags), (path, flags), EMFILE, ENOSPC, EIO)
CALL(int, -1, mkostemp64, (char *path, int flags), (path, flags), EMFILE, ENOSPC, EIO)
CALL(ssize_t, -1, readlink, (const char *path, char *to, size_t size), (path, to, size), EIO, ENOMEM)
CALL(int, -1, access, (const char *path, int how), (path, how), EIO, ENOMEM)
CALL(int, -1, faccessat, (int folder, const char *path, int how, int flags), (folder, path, how, flags), EIO,
        ENOMEM)
CALL(int, -1, stat, (const char *path, struct stat *to), (path, to), EIO, ENOMEM)
CALL(int, -1, stat64, (const char *path, struct stat64 *to), (path, to), EIO, ENOMEM)
CALL(int, -1, lstat, (const char *path, struct stat *to), (path, to), EIO, ENOMEM)
CALL(int, -1, lstat64, (const char *path, struct stat64 *to), (path, to), EIO, ENOMEM)
CALL(int, -1, fstat, (int file, struct stat *to), (file, to), EIO, ENOMEM)
CALL(int, -1, fstat64, (int file, struct stat64 *to), (file, to), EIO, ENOMEM)
CALL(int, -1, fstatat64, (int folder, const char *path, struct stat64 *to, int flags),
        (folder, path, to, flags), EIO, ENOMEM)
CALL(int, -1, statfs64, (const char *path, struct statfs64 *to), (path, to), EIO, ENOMEM)
CALL(int, -1, fstatfs, (int file, struct statfs *to), (file, to), EIO, ENOMEM)
CALL(int, -1, fstatfs64, (int file, struct statfs64 *to), (file, to), EIO, ENOMEM)
CALL(DIR *, NULL, opendir, (const char *path), (path), EMFILE, ENOMEM, EIO)
CALL(DIR *, NULL, fdopendir, (int file), (file), ENOMEM)
CALL(struct dirent *, NULL, readdir, (DIR * folder), (folder), EIO)
CALL(struct dirent64 *, NULL, readdir64, (DIR * folder), (folder), EIO)
CALL(struct group *, NULL, getgrnam, (const char *name), (name), EMFILE, EIO, ENOMEM)
CALL(void *, MAP_FAILED, mmap, (void *at, size_t size, int how, int flags, int file, off_t from),
        (at, size, how, flags, file, from), ENOMEM, EAGAIN)
CALL(void *, MAP_FAILED, mmap64, (void *at, size_t size, int how, int flags, int file, off64_t from),
        (at, size, how, flags, file, from), ENOMEM, EAGAIN)
CALL(int, -1, mprotect, (void *at, size_t size, int how), (at, size, how), ENOMEM)
CALL(ssize_t, -1, getrandom, (void *to, size_t size, unsigned int flags), (to, size, flags), EINTR)
CALL(pid_t, -1, fork, (void), (), EAGAIN, ENOMEM)
CALL(int, -1, execvp, (const char *path, char *const words[]), (path, words), ENOMEM, EIO)
CALL(pid_t, -1, waitpid, (pid_t child, int *status, int options), (child, status, options), EINTR)
CALL(FILE *, NULL, fopen, (const char *path, const char *mode), (path, mode), EMFILE, EIO, ENOMEM)
CALL(FILE *, NULL, fopen64, (const char *path, const char *mode), (path, mode), EMFILE, EIO, ENOMEM)
CALL(FILE *, NULL, fdopen, (int file, const char *mode), (file, mode), ENOMEM)
CALL(int, EOF, fclose, (FILE * file), (file), EIO, ENOSPC)

/* It returns its error. */
CALL(int, errno, pthread_create,
        (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *data),
        (thread, attributes, run, data), EAGAIN, ENOMEM)
CALL(int, errno, posix_fallocate64, (int file, off64_t from, off64_t size), (file, from, size), ENOSPC, EIO)

/* The stream remembers that it failed, as ferror reads it. */
static void mark(FILE *file)
{
	if (file != NULL)
		file->_flags |= 0x20;
}

#define STREAM_CALL(type, none, name, parameters, arguments)                                  \
	static type(*next_##name) parameters;                                                 \
	type name parameters                                                                  \
	{                                                                                     \
		static errors can_be = {EIO, ENOSPC};                                         \
                                                                                              \
		if (next_##name == NULL)                                                      \
			next_##name = (type(*) parameters)(uintptr_t)dlsym(RTLD_NEXT, #name); \
		if (!fails(IO, #name, can_be))                                                \
			return next_##name arguments;                                         \
		mark(file);                                                                   \
		return none;                                                                  \
	}

STREAM_CALL(size_t, 0, fwrite, (const void *from, size_t size, size_t count, FILE *file),
        (from, size, count, file))
STREAM_CALL(size_t, 0, fread, (void *to, size_t size, size_t count, FILE *file), (to, size, count, file))
STREAM_CALL(int, EOF, fflush, (FILE * file), (file))

/* Some take a mode, where they may make the file. */
static mode_t mode_of(int flags, va_list arguments)
{
	return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

static errors open_errors = {EMFILE, EIO, ENOMEM, ENFILE};

#define OPEN(name, at, parameters)                                                                           \
	int name parameters                                                                                  \
	{                                                                                                    \
		va_list arguments;                                                                           \
		mode_t mode;                                                                                 \
                                                                                                             \
		va_start(arguments, flags);                                                                  \
		mode = mode_of(flags, arguments);                                                            \
		va_end(arguments);                                                                           \
		return fails(IO, #name, open_errors) ? -1 : (int)syscall(SYS_openat, at, path, flags, mode); \
	}

OPEN(open, AT_FDCWD, (const char *path, int flags, ...))
OPEN(open64, AT_FDCWD, (const char *path, int flags, ...))
OPEN(openat, folder, (int folder, const char *path, int flags, ...))
OPEN(openat64, folder, (int folder, const char *path, int flags, ...))

/* Only what adds a descriptor takes memory; one that is there already is told of first. */
int epoll_ctl(int epoll, int how, int file, struct epoll_event *event)
{
	static errors can_be = {ENOMEM, ENOSPC};
	int status = (int)syscall(SYS_epoll_ctl, epoll, how, file, event);

	if (how != EPOLL_CTL_ADD || status != 0 || !fails(IO, "epoll_ctl", can_be))
		return status;
	status = errno;
	(void)syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_DEL, file, NULL);
	errno = status;
	return -1;
}

/* Locks and duplicates; the rest fails only for a mistake. */
static bool fcntl_fails(int command)
{
	static errors lock_errors = {ENOLCK, EINTR}, duplicate_errors = {EMFILE};

	switch (command) {
	case F_SETLK:
	case F_SETLKW:
	case F_OFD_SETLK:
	case F_OFD_SETLKW:
		return fails(IO, "fcntl", lock_errors);
	case F_DUPFD:
	case F_DUPFD_CLOEXEC:
		return fails(IO, "fcntl", duplicate_errors);
	default:
		return false;
	}
}

#define FCNTL(name)                                                                                  \
	int name(int file, int command, ...)                                                         \
	{                                                                                            \
		va_list arguments;                                                                   \
		void *argument;                                                                      \
                                                                                                     \
		va_start(arguments, command);                                                        \
		argument = va_arg(arguments, void *);                                                \
		va_end(arguments);                                                                   \
		return fcntl_fails(command) ? -1 : (int)syscall(SYS_fcntl, file, command, argument); \
	}

FCNTL(fcntl)
FCNTL(fcntl64)

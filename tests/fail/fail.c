/* Has one call of a program fail: an allocation, or a call to the system. Preloaded (LD_PRELOAD), and steered by the
 * environment:
 *
 *   FLYTUNE_FAIL_ALLOC=N    the Nth allocation gives NULL and ENOMEM; the first is 1
 *   FLYTUNE_FAIL_IO=N       the Nth call to the system fails
 *   FLYTUNE_FAIL_ERRNO=E    with that number; else EIO
 *   FLYTUNE_FAIL_ON=1       and so does every later one of that kind
 *   FLYTUNE_FAIL_COUNT=FILE at its end the program adds a line: "NAME PID alloc N io N", how many there were, and "hit" if
 *                           one was failed
 *   FLYTUNE_FAIL_PROGRAM=P  only in the program of that name; else in every one that inherits the environment
 *   FLYTUNE_FAIL_AFTER=FILE counted only from when that file is there
 *
 * What the C library calls inside itself (such as the write under fflush) is not seen: fopen, fwrite, fflush and fclose
 * count as calls instead. Calls that nothing is to be done about (close, munmap) are left alone. Threads share the counts. */
/* Both names of each call are wanted: the plain one, and the one for large files. */
#undef _FILE_OFFSET_BITS
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

enum kind { ALLOC, IO, KINDS };

static struct {
	atomic_ulong count;
	unsigned long fails; /* this one; 0: none */
} kinds[KINDS];
static atomic_bool hit, started;
static bool is_on, is_ours;
static int with_errno = EIO;
static const char *after;

static unsigned long number_of(const char *name)
{
	const char *text = getenv(name);

	return text == NULL ? 0 : strtoul(text, NULL, 10);
}

__attribute__((constructor)) static void begin(void)
{
	const char *program = getenv("FLYTUNE_FAIL_PROGRAM");

	kinds[ALLOC].fails = number_of("FLYTUNE_FAIL_ALLOC");
	kinds[IO].fails = number_of("FLYTUNE_FAIL_IO");
	is_on = number_of("FLYTUNE_FAIL_ON") != 0;
	if (number_of("FLYTUNE_FAIL_ERRNO") != 0)
		with_errno = (int)number_of("FLYTUNE_FAIL_ERRNO");
	after = getenv("FLYTUNE_FAIL_AFTER");
	started = after == NULL;
	is_ours = program == NULL || strcmp(program, program_invocation_short_name) == 0;
}

__attribute__((destructor)) static void tell(void)
{
	const char *path = getenv("FLYTUNE_FAIL_COUNT");
	char line[256];
	int length, file;

	if (!is_ours || path == NULL)
		return;
	length = snprintf(line, sizeof line, "%s %d alloc %lu io %lu%s\n", program_invocation_short_name,
	        (int)getpid(), kinds[ALLOC].count, kinds[IO].count, hit ? " hit" : "");
	file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (file >= 0) {
		(void)syscall(SYS_write, file, line, (size_t)length);
		(void)syscall(SYS_close, file);
	}
}

static bool has_started(void)
{
	if (!started && syscall(SYS_faccessat, AT_FDCWD, after, F_OK) == 0)
		started = true;
	return started;
}

/* Whether this call is the one. */
static bool fails(enum kind kind)
{
	int saved = errno;
	unsigned long number;
	bool fail;

	if (!is_ours || !has_started()) {
		errno = saved;
		return false;
	}
	number = ++kinds[kind].count;
	fail = kinds[kind].fails != 0 &&
	        (number == kinds[kind].fails || (is_on && number > kinds[kind].fails));
	if (fail)
		hit = true;
	errno = !fail ? saved : kind == ALLOC ? ENOMEM : with_errno;
	return fail;
}

/* ---- allocations ---- */

void *malloc(size_t size)
{
	return fails(ALLOC) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	return fails(ALLOC) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
	return fails(ALLOC) ? NULL : __libc_realloc(memory, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return fails(ALLOC) ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
	if (fails(ALLOC))
		return ENOMEM;
	*memory = __libc_memalign(alignment, size);
	return *memory == NULL ? ENOMEM : 0;
}

/* ---- calls to the system ---- */

/* Each asks the C library for the next function of its name, once. */
#define CALL(type, none, name, parameters, arguments)                                  \
	type name parameters                                                           \
	{                                                                              \
		static type(*next) parameters;                                         \
                                                                                       \
		if (next == NULL)                                                      \
			next = (type(*) parameters)(uintptr_t)dlsym(RTLD_NEXT, #name); \
		return fails(IO) ? (none) : next arguments;                            \
	}

CALL(ssize_t, -1, read, (int file, void *to, size_t size), (file, to, size))
CALL(ssize_t, -1, readv, (int file, const struct iovec *parts, int count), (file, parts, count))
CALL(ssize_t, -1, pread, (int file, void *to, size_t size, off_t at), (file, to, size, at))
CALL(ssize_t, -1, pread64, (int file, void *to, size_t size, off64_t at), (file, to, size, at))
CALL(ssize_t, -1, write, (int file, const void *from, size_t size), (file, from, size))
CALL(ssize_t, -1, writev, (int file, const struct iovec *parts, int count), (file, parts, count))
CALL(ssize_t, -1, pwrite, (int file, const void *from, size_t size, off_t at), (file, from, size, at))
CALL(ssize_t, -1, pwrite64, (int file, const void *from, size_t size, off64_t at), (file, from, size, at))
CALL(ssize_t, -1, pwritev, (int file, const struct iovec *parts, int count, off_t at),
        (file, parts, count, at))
CALL(ssize_t, -1, pwritev64, (int file, const struct iovec *parts, int count, off64_t at),
        (file, parts, count, at))
CALL(ssize_t, -1, recv, (int file, void *to, size_t size, int flags), (file, to, size, flags))
CALL(ssize_t, -1, recvmsg, (int file, struct msghdr *message, int flags), (file, message, flags))
CALL(ssize_t, -1, send, (int file, const void *from, size_t size, int flags), (file, from, size, flags))
CALL(ssize_t, -1, sendmsg, (int file, const struct msghdr *message, int flags), (file, message, flags))
CALL(int, -1, socket, (int domain, int type, int protocol), (domain, type, protocol))
CALL(int, -1, socketpair, (int domain, int type, int protocol, int pair[2]), (domain, type, protocol, pair))
CALL(int, -1, bind, (int file, __CONST_SOCKADDR_ARG address, socklen_t size), (file, address, size))
CALL(int, -1, listen, (int file, int backlog), (file, backlog))
CALL(int, -1, connect, (int file, __CONST_SOCKADDR_ARG address, socklen_t size), (file, address, size))
CALL(int, -1, accept4, (int file, __SOCKADDR_ARG address, socklen_t *size, int flags),
        (file, address, size, flags))
CALL(int, -1, fsync, (int file), (file))
CALL(int, -1, fdatasync, (int file), (file))
CALL(int, -1, ftruncate, (int file, off_t size), (file, size))
CALL(int, -1, ftruncate64, (int file, off64_t size), (file, size))
CALL(int, -1, fchmod, (int file, mode_t mode), (file, mode))
CALL(int, -1, rename, (const char *from, const char *to), (from, to))
CALL(int, -1, mkdir, (const char *path, mode_t mode), (path, mode))
CALL(int, -1, mkostemp, (char *path, int flags), (path, flags))
CALL(int, -1, mkostemp64, (char *path, int flags), (path, flags))
CALL(void *, MAP_FAILED, mmap, (void *at, size_t size, int how, int flags, int file, off_t from),
        (at, size, how, flags, file, from))
CALL(void *, MAP_FAILED, mmap64, (void *at, size_t size, int how, int flags, int file, off64_t from),
        (at, size, how, flags, file, from))
CALL(FILE *, NULL, fopen, (const char *path, const char *mode), (path, mode))
CALL(FILE *, NULL, fopen64, (const char *path, const char *mode), (path, mode))
CALL(FILE *, NULL, fdopen, (int file, const char *mode), (file, mode))
CALL(int, EOF, fclose, (FILE * file), (file))

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
		if (next_##name == NULL)                                                      \
			next_##name = (type(*) parameters)(uintptr_t)dlsym(RTLD_NEXT, #name); \
		if (!fails(IO))                                                               \
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

#define OPEN(name, at, parameters, ...)                                                  \
	int name parameters                                                              \
	{                                                                                \
		va_list arguments;                                                       \
		mode_t mode;                                                             \
                                                                                         \
		va_start(arguments, flags);                                              \
		mode = mode_of(flags, arguments);                                        \
		va_end(arguments);                                                       \
		return fails(IO) ? -1 : (int)syscall(SYS_openat, at, path, flags, mode); \
	}

OPEN(open, AT_FDCWD, (const char *path, int flags, ...))
OPEN(open64, AT_FDCWD, (const char *path, int flags, ...))
OPEN(openat, folder, (int folder, const char *path, int flags, ...))
OPEN(openat64, folder, (int folder, const char *path, int flags, ...))

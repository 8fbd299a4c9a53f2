#include "kernels/runner/confine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/folder/folder.h"

enum {
	FIRST_FOREIGN = 4,  /* descriptors below it are the daemon's gift: what is said, and its socket */
	THREADS_MAX = 48,   /* of the daemon */
	PROGRAM_MAX = 1024, /* instructions of the filter */
};

/* ---- Landlock ---- */

/* Debian 12 has the header of an older kernel than may run. */
enum {
	READ = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR,
	RUN = READ | LANDLOCK_ACCESS_FS_EXECUTE,
	TRUNCATE = 1 << 14,  /* version 3 */
	IOCTL_DEV = 1 << 15, /* version 5 */
	WRITE = LANDLOCK_ACCESS_FS_WRITE_FILE | TRUNCATE,
	REFER = LANDLOCK_ACCESS_FS_REFER, /* version 2 */
	KEEP = RUN | WRITE | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
	        LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SYM |
	        REFER,
	OF_FILES = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_EXECUTE | WRITE | IOCTL_DEV,
	ALL = (1 << 16) - 1,
	ALL_NETWORK = 3, /* bind and connect of TCP: version 4 */
	ALL_SCOPES = 3,  /* abstract sockets and signals: version 6 */
	SCOPES_SINCE = 6,
};

struct ruleset {
	int descriptor;
	uint64_t files; /* of ALL, what this kernel knows */
	bool failed;    /* with errno at `why` */
	int why;
};

/* As struct landlock_ruleset_attr of version 6. An older kernel takes it, if what it does not know is 0. */
struct ruleset_attributes {
	uint64_t files, network, scopes;
};

/* What is not there need not be opened. */
static void allow(struct ruleset *ruleset, const char *path, uint64_t access)
{
	struct landlock_path_beneath_attr rule = {.parent_fd = open(path, O_PATH | O_CLOEXEC)};
	struct stat about;
	if (rule.parent_fd < 0)
		return;
	rule.allowed_access = access & ruleset->files;
	if (fstat(rule.parent_fd, &about) == 0 && !S_ISDIR(about.st_mode))
		rule.allowed_access &= OF_FILES;
	if (rule.allowed_access != 0 &&
	        syscall(SYS_landlock_add_rule, ruleset->descriptor, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) !=
	                0) {
		ruleset->failed = true;
		ruleset->why = errno;
	}
	close(rule.parent_fd);
}

static void allow_matches(struct ruleset *ruleset, const char *pattern, uint64_t access)
{
	glob_t found;
	if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
		for (size_t i = 0; i < found.gl_pathc; i++)
			allow(ruleset, found.gl_pathv[i], access);
		globfree(&found);
	}
}

/* The files that links in a folder of libraries lead to. */
static void allow_links(struct ruleset *ruleset, const char *folder)
{
	char path[4096 + 256];
	struct stat about;
	DIR *all = opendir(folder);
	for (const struct dirent *one; all && (one = readdir(all)) != NULL;) {
		snprintf(path, sizeof(path), "%s/%s", folder, one->d_name);
		if (one->d_type == DT_LNK && stat(path, &about) == 0 && S_ISREG(about.st_mode))
			allow(ruleset, path, RUN);
	}
	if (all)
		closedir(all);
}

/* A list of folders in the environment, which is the daemon's. */
static void allow_listed(struct ruleset *ruleset, const char *variable)
{
	char list[4096], headers[4096 + 16], *rest = list;
	const char *value = secure_getenv(variable);
	snprintf(list, sizeof(list), "%s", value ? value : "");
	for (const char *folder; (folder = strsep(&rest, ":")) != NULL;) {
		if (folder[0] != '/' || folder[1] == '\0')
			continue;
		allow(ruleset, folder, RUN);
		if (strcmp(variable, "LD_LIBRARY_PATH") == 0)
			allow_links(ruleset, folder);
		snprintf(headers, sizeof(headers), "%s/../include",
		        folder); /* a toolkit's, beside its libraries */
		allow(ruleset, headers, READ);
	}
}

static void allow_all(struct ruleset *ruleset, const char *kind, const char *code_dir, const char *build)
{
	static const char *const run[] = {"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	        "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives",
	        "/usr/local/cuda", "/proc/self/exe"};
	static const char *const listed[] = {
	        "PATH", "LD_LIBRARY_PATH", "ROCM_PATH", "FLYTUNE_SYSFS_ROOT" /* of tests */};
	static const char *const device[] = {
	        "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/kfd", "/dev/dri"};
	char lock[512];
	for (size_t i = 0; i < sizeof(run) / sizeof(*run); i++)
		allow(ruleset, run[i], RUN);
	for (size_t i = 0; i < sizeof(listed) / sizeof(*listed); i++)
		allow_listed(ruleset, listed[i]);
	for (size_t i = 0; i < sizeof(device) / sizeof(*device); i++)
		allow(ruleset, device[i], READ | WRITE | IOCTL_DEV);
	allow_matches(ruleset, "/dev/nvidia*", READ | WRITE | IOCTL_DEV);
	allow_matches(ruleset, "/opt/rocm*", RUN);
	allow_matches(ruleset, "/opt/cuda*", RUN);
	allow(ruleset, "/sys", READ);
	allow(ruleset, "/proc", READ);
	allow(ruleset, "/proc/self", READ | WRITE); /* names of threads, for one */
	allow(ruleset, build, KEEP);
	if (strcmp(kind, "cpu") != 0) {
		allow(ruleset, code_dir, KEEP);
		allow(ruleset, "/dev/shm", KEEP); /* drivers share memory there */
		return;
	}
	/* It keeps no code, and only takes turns with those who do. */
	snprintf(lock, sizeof(lock), "%s/.host-lock", code_dir);
	close(open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0640));
	allow(ruleset, lock, READ | WRITE);
}

/* The version of Landlock, at most as is known here; 0: there is none. */
static int landlock_version(void)
{
	long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	return version < 0 ? 0 : version > SCOPES_SINCE ? SCOPES_SINCE : (int)version;
}

static int restrict_files(
        const char *kind, const char *code_dir, const char *build, int version, struct ft_error *error)
{
	struct ruleset_attributes attributes = {.files = ALL & ~(TRUNCATE | IOCTL_DEV | REFER)};
	if (version >= 2)
		attributes.files |= REFER;
	if (version >= 3)
		attributes.files |= TRUNCATE;
	if (version >= 4)
		attributes.network = ALL_NETWORK;
	if (version >= 5)
		attributes.files |= IOCTL_DEV;
	if (version >= SCOPES_SINCE)
		attributes.scopes = ALL_SCOPES;
	struct ruleset ruleset = {.files = attributes.files};
	ruleset.descriptor = (int)syscall(SYS_landlock_create_ruleset, &attributes, sizeof(attributes), 0);
	if (ruleset.descriptor < 0)
		return ft_fail_errno(error, errno, "cannot make a Landlock ruleset");
	allow_all(&ruleset, kind, code_dir, build);
	if (!ruleset.failed && syscall(SYS_landlock_restrict_self, ruleset.descriptor, 0) != 0) {
		ruleset.failed = true;
		ruleset.why = errno;
	}
	close(ruleset.descriptor);
	return ruleset.failed ? ft_fail_errno(error, ruleset.why, "cannot restrict files by Landlock") : 0;
}

/* ---- system calls ---- */

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

#ifdef ARCHITECTURE

/* Debian 12 has the header of an older kernel than may run. */
enum { FCHMODAT2 = 452, SETXATTRAT = 463, REMOVEXATTRAT = 466 };
enum { OTHER_NUMBERS = 0x40000000 /* x32's calls */, OWN_BY_IOCTL = 0x8901, GROUP_BY_IOCTL = 0x8902 };

/* What nothing here needs, and Landlock leaves open; or left open in its first versions. */
static const unsigned refused[] = {
        SYS_connect,
        SYS_io_uring_setup /* it connects, too */,
        SYS_pidfd_send_signal,
        SYS_truncate,
        SYS_fchmodat,
        FCHMODAT2,
        SYS_fchownat,
        SYS_setxattr,
        SYS_lsetxattr,
        SETXATTRAT,
        SYS_removexattr,
        SYS_lremovexattr,
        REMOVEXATTRAT,
#ifdef SYS_chmod
        SYS_chmod,
        SYS_chown,
        SYS_lchown,
#endif
};

struct program {
	unsigned short count;
	struct sock_filter at[PROGRAM_MAX];
};

static void add(struct program *program, uint16_t code, uint32_t value, uint8_t yes, uint8_t no)
{
	if (program->count < PROGRAM_MAX)
		program->at[program->count++] =
		        (struct sock_filter){.code = code, .k = value, .jt = yes, .jf = no};
}

static void load(struct program *program, size_t offset)
{
	add(program, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void load_argument(struct program *program, unsigned which)
{
	/* Its lower half: those that are looked at are ints. Both architectures have it first. */
	load(program, offsetof(struct seccomp_data, args) + which * sizeof(uint64_t));
}

static void give(struct program *program, bool allowed)
{
	add(program, BPF_RET | BPF_K, allowed ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | EPERM, 0, 0);
}

static void refuse_if(struct program *program, uint32_t value)
{
	add(program, BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
	give(program, false);
}

/* A call is refused if one of its arguments is among some values; or unless it is, with `only`. */
static void filter_call(struct program *program, unsigned call, unsigned argument, const uint32_t *value,
        size_t values, bool only)
{
	add(program, BPF_JMP | BPF_JEQ | BPF_K, call, 0, (uint8_t)(2 * values + 2));
	load_argument(program, argument);
	for (size_t i = 0; i < values; i++) {
		add(program, BPF_JMP | BPF_JEQ | BPF_K, value[i], 0, 1);
		give(program, only);
	}
	give(program, !only);
}

/* How the daemon can be named in a signal: as a process, by one of its threads, as a group, among all. Later threads of it are not
 * among them: the daemon starts few, and late ones for a reload alone. */
static size_t names_of_daemon(uint32_t name[THREADS_MAX])
{
	size_t count = 0;
	char path[64];
	const pid_t daemon = getppid();
	name[count++] = (uint32_t)-1;
	name[count++] = (uint32_t)daemon;
	name[count++] = (uint32_t)-daemon;
	if (getpgid(daemon) != getpgrp())
		name[count++] = (uint32_t)-getpgid(daemon);
	snprintf(path, sizeof(path), "/proc/%d/task", (int)daemon);
	DIR *threads = opendir(path);
	for (const struct dirent *one; threads && count < THREADS_MAX && (one = readdir(threads)) != NULL;) {
		if (one->d_name[0] != '.')
			name[count++] = (uint32_t)strtoul(one->d_name, NULL, 10);
	}
	if (threads)
		closedir(threads);
	return count;
}

static int restrict_calls(struct ft_error *error)
{
	static const unsigned signals[] = {
	        SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo};
	static const uint32_t owners[] = {F_SETOWN, F_SETOWN_EX};
	static const uint32_t owners_by_ioctl[] = {OWN_BY_IOCTL, GROUP_BY_IOCTL};
	const uint32_t families[] = {AF_UNIX}, self[] = {0, (uint32_t)getpid()};
	uint32_t daemon[THREADS_MAX];
	const size_t names = names_of_daemon(daemon);
	static struct program program; /* too large for a stack; made once, by the only thread */

	load(&program, offsetof(struct seccomp_data, arch));
	add(&program, BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
	give(&program, false);
	load(&program, offsetof(struct seccomp_data, nr));
	add(&program, BPF_JMP | BPF_JGE | BPF_K, OTHER_NUMBERS, 0, 1);
	give(&program, false);
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
		refuse_if(&program, refused[i]);
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		filter_call(&program, signals[i], 0, daemon, names, false);
	/* A descriptor's owner gets signals for it. */
	filter_call(&program, SYS_fcntl, 1, owners, 2, false);
	filter_call(&program, SYS_ioctl, 1, owners_by_ioctl, 2, false);
	filter_call(&program, SYS_socket, 0, families, 1, true);
	filter_call(&program, SYS_prlimit64, 0, self, 2, true);
	give(&program, true);
	struct sock_fprog all = {.len = program.count, .filter = program.at};
	/* Without the flag an older kernel slows the whole process down, against attacks from inside. */
	if (program.count == PROGRAM_MAX ||
	        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &all) != 0)
		return ft_fail_errno(error, errno, "cannot restrict system calls");
	return 0;
}

#else

static int restrict_calls(struct ft_error *error)
{
	return ft_fail(error, FT_E_UNAVAILABLE, "system calls of this architecture are not known");
}

#endif

/* ---- the folder to build in ---- */

/* Makes build-PID, and removes those of runners that are gone: none can remove its own. */
static int make_build_folder(const char *code_dir, char *path, size_t size, struct ft_error *error)
{
	static const char prefix[] = "build-";
	DIR *all = opendir(code_dir);
	for (const struct dirent *one; all && (one = readdir(all)) != NULL;) {
		if (strncmp(one->d_name, prefix, sizeof(prefix) - 1) != 0)
			continue;
		pid_t pid = (pid_t)strtol(one->d_name + sizeof(prefix) - 1, NULL, 10);
		snprintf(path, size, "%s/%.64s", code_dir, one->d_name);
		if (pid <= 0 || pid == getpid() || (kill(pid, 0) != 0 && errno == ESRCH))
			ft_folder_remove(path);
	}
	if (all)
		closedir(all);
	int length = snprintf(path, size, "%s/%s%d", code_dir, prefix, (int)getpid());
	if (length >= (int)size)
		return ft_fail(error, FT_E_BAD_VALUE, "the path of %s is too long", code_dir);
	if (mkdir(path, 0700) != 0)
		return ft_fail_errno(error, errno, "cannot make %s", path);
	return setenv("TMPDIR", path, 1) == 0 ? 0 : ft_fail(error, FT_E_MEMORY, "no memory");
}

int confine(const char *kind, const char *code_dir, char *lacks, size_t size, struct ft_error *error)
{
	const int version = landlock_version();
	char build[512];
	syscall(SYS_close_range, FIRST_FOREIGN, ~0u, 0);
	if (make_build_folder(code_dir, build, sizeof(build), error) < 0)
		return -1;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return ft_fail_errno(error, errno, "cannot give up new privileges");
	lacks[0] = '\0';
	if (version == 0)
		snprintf(lacks, size,
		        "the code of kernel folders is not kept from the store, nor from other files and "
		        "processes of this user: this system has no Landlock");
	else if (version < SCOPES_SINCE)
		snprintf(lacks, size,
		        "the code of kernel folders is kept from signals to the daemon, but not to other "
		        "processes of this user: Landlock %d of this system cannot, %d of Linux 6.12 can",
		        version, SCOPES_SINCE);
	if (version > 0 && restrict_files(kind, code_dir, build, version, error) < 0)
		return -1;
	return restrict_calls(error);
}

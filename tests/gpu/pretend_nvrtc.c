/* An nvrtc that pretends: see pretend_cuda.c. A folder's source it really compiles, for the host; what that
 * takes stays in TMPDIR, which is a test's own. */
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/kernel.h"
#include "tests/gpu/pretend.h"

struct program {
	uint32_t kernel;
	char text[4096]; /* options, parted by spaces */
	/* Of a folder. */
	char folder[256]; /* with its source and includes; "": it is another's */
	char name[64];
	char log[4096];
	char *library;
	size_t library_size;
};

/* What a device source finds declared. */
static const char prelude[] =
        "struct pretended_index { unsigned x, y, z; };\n"
        "extern \"C\" { struct pretended_index blockIdx, threadIdx, blockDim, gridDim; }\n"
        "#define __global__\n#define __device__ static\n#define __launch_bounds__(...)\n";

static bool write_text(const char *folder, const char *name, const char *text)
{
	char path[512];

	snprintf(path, sizeof path, "%s/%s", folder, name);
	FILE *file = fopen(path, "we");
	return file && fputs(text, file) >= 0 && fclose(file) == 0;
}

/* Up to `size` bytes; 0 if there is no such file. */
static size_t read_bytes(const char *folder, const char *name, char *to, size_t size)
{
	char path[512];

	snprintf(path, sizeof path, "%s/%s", folder, name);
	FILE *file = fopen(path, "re");
	size_t got = file ? fread(to, 1, size, file) : 0;
	if (file)
		fclose(file);
	return got;
}

/* The child's whole life. */
static void become_compiler(const char *folder, const char *const *argument)
{
	int log = chdir(folder) == 0 ? open("log", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;

	if (log >= 0 && dup2(log, STDERR_FILENO) >= 0)
		execvp(argument[0], (char *const *)(uintptr_t)argument);
	_exit(127);
}

static int compile_own(struct program *program, int options, const char **option)
{
	enum { LIBRARY_MAX = 1 << 20, WORDS = 64 };
	const char *argument[WORDS] = {"c++", "-shared", "-fPIC", "-O1", "-x", "c++", "-include", "prelude.h",
	        "-o", "library.so", program->name};
	size_t count = 11;
	int status = -1;

	for (int i = 0; i < options && count + 1 < WORDS; i++)
		if (strncmp(option[i], "-D", 2) == 0)
			argument[count++] = option[i];
	program->library = malloc(LIBRARY_MAX);
	if (!program->library)
		return NO_MEMORY;
	pid_t pid = fork();

	if (pid == 0)
		become_compiler(program->folder, argument);
	if (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0)
		program->library_size =
		        read_bytes(program->folder, "library.so", program->library, LIBRARY_MAX);
	else
		read_bytes(program->folder, "log", program->log, sizeof program->log - 1);
	return program->library_size > 0 ? OK : INVALID;
}

static const char log_text[] = "ptxas info    : Compiling entry function\n"
                               "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
                               "ptxas info    : Used 32 registers, used 1 barriers, 64 bytes smem\n";

EXPORT int nvrtcVersion(int *major, int *minor)
{
	*major = 13;
	*minor = 99;
	return OK;
}

EXPORT int nvrtcCreateProgram(struct program **program, const char *source, const char *name, int headers,
        const char **header, const char **include_name)
{
	bool known = strcmp(name, "check.hip") == 0;

	*program = calloc(1, sizeof **program);
	if (!*program)
		return NO_MEMORY;
	for (uint32_t i = 0; ft_kernels_gpu[i]; i++)
		if (strcmp(source, ft_kernels_gpu[i]->source.text) == 0 ||
		        strcmp(source, ft_kernels_gpu[i]->check) == 0) {
			(*program)->kernel = i;
			known = true;
		}
	if (!known) {
		const char *place = getenv("TMPDIR");

		snprintf((*program)->folder, sizeof(*program)->folder, "%s/pretend-XXXXXX",
		        place ? place : "/tmp");
		snprintf((*program)->name, sizeof(*program)->name, "%s", name);
		if (!mkdtemp((*program)->folder) || !write_text((*program)->folder, name, source) ||
		        !write_text((*program)->folder, "prelude.h", prelude))
			return INVALID;
		for (int i = 0; i < headers; i++)
			if (!write_text((*program)->folder, include_name[i], header[i]))
				return INVALID;
	}
	snprintf((*program)->text, sizeof(*program)->text, "%s ", name);
	return OK;
}

EXPORT int nvrtcCompileProgram(struct program *program, int options, const char **option)
{
	for (int i = 0; i < options; i++) {
		size_t length = strlen(program->text);

		snprintf(program->text + length, sizeof program->text - length, "%s ", option[i]);
	}
	if (strstr(program->text, "sm_77"))
		abort();
	return program->folder[0] ? compile_own(program, options, option) : OK;
}

EXPORT int nvrtcGetProgramLogSize(struct program *program, size_t *size)
{
	*size = program->log[0] ? strlen(program->log) + 1 : sizeof log_text;
	return OK;
}

EXPORT int nvrtcGetProgramLog(struct program *program, char *log)
{
	if (program->log[0])
		memcpy(log, program->log, strlen(program->log) + 1);
	else
		memcpy(log, log_text, sizeof log_text);
	return OK;
}

EXPORT int nvrtcGetCUBINSize(struct program *program, size_t *size)
{
	*size = sizeof(struct object) + program->library_size;
	return OK;
}

EXPORT int nvrtcGetCUBIN(struct program *program, char *code)
{
	static const char names[] = "\0.text.k\0.shstrtab";
	struct object object = {
	        .header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64},
	                .e_machine = EM_CUDA,
	                .e_shoff = offsetof(struct object, section),
	                .e_shentsize = sizeof(Elf64_Shdr),
	                .e_shnum = 3,
	                .e_shstrndx = 2},
	        .section = {[1] = {.sh_name = 1,
	                            .sh_type = SHT_PROGBITS,
	                            .sh_offset = offsetof(struct object, kernel),
	                            .sh_size = sizeof object - offsetof(struct object, kernel) +
	                                    program->library_size},
	                [2] = {.sh_name = 9,
	                        .sh_type = SHT_STRTAB,
	                        .sh_offset = offsetof(struct object, names),
	                        .sh_size = sizeof object.names}},
	};

	memcpy(object.names, names, sizeof names);
	object.kernel = program->kernel;
	memcpy(object.text, program->text, sizeof object.text);
	object.library_size = program->library_size;
	memcpy(code, &object, sizeof object);
	if (program->library_size > 0)
		memcpy(code + sizeof object, program->library, program->library_size);
	return OK;
}

EXPORT int nvrtcDestroyProgram(struct program **program)
{
	free((*program)->library);
	free(*program);
	*program = NULL;
	return OK;
}

EXPORT const char *nvrtcGetErrorString(int error)
{
	(void)error;
	return "pretended error";
}

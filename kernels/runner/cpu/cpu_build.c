#include "kernels/runner/cpu/cpu_build.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 8192 /* bytes of a generated source */ };

#define STEPS_SOURCE "flytune_steps.c"
#define REFERENCE_SOURCE "flytune_reference.c"

/* ---- how functions are called ---- */

static const char *const c_types[] = {
        [FT_SCALAR_I32] = "int32_t",
        [FT_SCALAR_U32] = "uint32_t",
        [FT_SCALAR_I64] = "int64_t",
        [FT_SCALAR_U64] = "uint64_t",
        [FT_SCALAR_F32] = "float",
        [FT_SCALAR_F64] = "double",
};

static void write_arguments(FILE *to, const struct ft_folder_arguments *arguments)
{
	for (uint32_t i = 0; i < arguments->count; i++) {
		if (arguments->argument[i].is_buffer)
			fprintf(to, ", argument[%" PRIu32 "]", i);
		else
			fprintf(to, ", *(const %s *)argument[%" PRIu32 "]",
			        c_types[arguments->argument[i].type], i);
	}
	fprintf(to, ");\n}\n");
}

/* The functions by which the runner calls those of the source: one a step, with their arguments in an array. */
int cpu_build_write_steps(
        const struct cpu_build *build, const struct ft_folder_launch *launch, struct ft_error *error)
{
	char text[TEXT_MAX] = "";
	FILE *to = fmemopen(text, sizeof(text), "w");
	if (!to)
		return ft_fail(error, FT_E_MEMORY, "no memory for a source");
	fprintf(to, "#include <stdint.h>\n#include \"%s\"\n", ft_folder_source(build->folder, "cpu")->file);
	for (uint32_t i = 0; i < launch->count; i++) {
		const struct ft_folder_step *step = &launch->step[i];
		fprintf(to,
		        "void flytune_step_%" PRIu32
		        "(void *const *argument, const int64_t *block)\n{\n\t%s(block",
		        i, step->symbol);
		write_arguments(to, &step->arguments);
	}
	if (fclose(to) != 0 || strlen(text) >= sizeof(text) - 1)
		return ft_fail(error, FT_E_BAD_VALUE, "the launch is too long");
	return ft_folder_write_file(build->where, STEPS_SOURCE, text, strlen(text), error);
}

static int write_reference(
        const struct cpu_build *build, const struct ft_folder_reference *reference, struct ft_error *error)
{
	char text[TEXT_MAX] = "";
	FILE *to = fmemopen(text, sizeof(text), "w");
	if (!to)
		return ft_fail(error, FT_E_MEMORY, "no memory for a source");
	fprintf(to,
	        "#include <stdint.h>\n#include \"%s\"\n"
	        "void flytune_reference(int64_t first, int64_t last, void *const *argument)\n{\n\t%s(first, "
	        "last",
	        reference->file, reference->symbol);
	write_arguments(to, &reference->arguments);
	if (fclose(to) != 0 || strlen(text) >= sizeof(text) - 1)
		return ft_fail(error, FT_E_BAD_VALUE, "the reference's arguments are too long");
	return ft_folder_write_file(build->where, REFERENCE_SOURCE, text, strlen(text), error);
}

/* ---- compiling ---- */

static int submit(struct cpu_build *build, size_t tag, const char *source, const struct ft_defines *defines,
        const char *library, struct ft_error *error)
{
	/* Stripped: the file's name would make two libraries differ that are alike. What is called and declared nowhere, and a
	 * pointer for a number, are errors with a place now, not a library that cannot be loaded or a crash. */
	const char *argument[CC_ARGUMENTS_MAX] = {"-shared", "-fPIC", "-O3", "-march=native", "-std=gnu11",
	        "-Werror=implicit-function-declaration", "-Werror=int-conversion", "-s",
	        "-Wl,--build-id=none", "-o", library, source};
	const struct ft_folder_source *kernel = ft_folder_source(build->folder, "cpu");
	size_t count = 12;
	for (uint32_t i = 0; kernel && i < kernel->option_count; i++)
		argument[count++] = kernel->option[i];
	for (uint32_t i = 0; defines && i < defines->count; i++)
		argument[count++] = defines->text[i];
	argument[count++] = "-lm";
	return cc_submit(build->cc, tag, build->where, argument, count, error);
}

int cpu_build_steps(struct cpu_build *build, size_t tag, const struct ft_defines *defines,
        const char *library, struct ft_error *error)
{
	return submit(build, tag, STEPS_SOURCE, defines, library, error);
}

int cpu_build_reference(struct cpu_build *build, size_t tag, const struct ft_folder_reference *reference,
        const char *library, struct ft_error *error)
{
	return write_reference(build, reference, error) < 0
	        ? -1
	        : submit(build, tag, REFERENCE_SOURCE, NULL, library, error);
}

int cpu_build_open(
        struct cpu_build *build, const struct ft_folder *folder, unsigned processes, struct ft_error *error)
{
	const char *temporary = secure_getenv("TMPDIR");
	*build = (struct cpu_build){.folder = folder, .cc = cc_new(processes)};
	if (!build->cc)
		return ft_fail(error, FT_E_MEMORY, "no memory for compilers");
	snprintf(build->where, sizeof(build->where), "%s/flytune-XXXXXX", temporary ? temporary : "/tmp");
	if (!mkdtemp(build->where)) {
		build->where[0] = '\0';
		return ft_fail_errno(error, errno, "cannot make a folder to compile in");
	}
	return ft_folder_write(folder, build->where, error);
}

void cpu_build_close(struct cpu_build *build)
{
	cc_free(build->cc);
	if (build->where[0] != '\0')
		ft_folder_remove(build->where);
}

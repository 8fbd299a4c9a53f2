#include "kernels/runner/gpu/gpu_code.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kernels/code_file.h"
#include "kernels/runner/gpu/pipe_io.h"

enum {
	MAGIC_LENGTH = sizeof FT_CODE_MAGIC - 1,
	HEADER_MAX = 4096,
	STEPS_SIZE = 512,
	NOTE_AMDGPU_METADATA = 32
};

void gpu_code_free(struct gpu_code *code)
{
	free(code->data);
	memset(code, 0, sizeof *code);
}

/* ---- reading an object ---- */

struct sections {
	const uint8_t *data;
	size_t size;
	const Elf64_Ehdr *header;
	const Elf64_Shdr *section;
	const char *names;
	size_t names_size;
};

static int open_sections(struct sections *elf, const uint8_t *data, size_t size, struct ft_error *error)
{
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)(const void *)data;

	if (size < sizeof *header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
	        header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_shentsize != sizeof(Elf64_Shdr) ||
	        header->e_shoff > size || header->e_shoff % 8 != 0 ||
	        (size - header->e_shoff) / sizeof(Elf64_Shdr) < header->e_shnum ||
	        header->e_shstrndx >= header->e_shnum)
		return ft_fail(error, FT_E_UNAVAILABLE, "what the compiler made is no ELF object");
	elf->data = data;
	elf->size = size;
	elf->header = header;
	elf->section = (const Elf64_Shdr *)(const void *)(data + header->e_shoff);
	for (unsigned i = 0; i < header->e_shnum; i++) {
		const Elf64_Shdr *section = &elf->section[i];

		if (section->sh_type != SHT_NOBITS &&
		        (section->sh_offset > size || size - section->sh_offset < section->sh_size))
			return ft_fail(error, FT_E_UNAVAILABLE, "a section of the code object is cut off");
	}
	elf->names = (const char *)data + elf->section[header->e_shstrndx].sh_offset;
	elf->names_size = elf->section[header->e_shstrndx].sh_size;
	if (elf->names_size == 0 || elf->names[elf->names_size - 1] != '\0')
		return ft_fail(error, FT_E_UNAVAILABLE, "the code object's section names are damaged");
	return 0;
}

static const char *section_name(const struct sections *elf, const Elf64_Shdr *section)
{
	return section->sh_name < elf->names_size ? elf->names + section->sh_name : "";
}

static bool begins(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* What the device executes: instructions, constants and kernel descriptors; not names, notes or debugging. */
static bool is_machine_code(const char *name)
{
	return begins(name, ".text") || begins(name, ".nv.constant") || strcmp(name, ".rodata") == 0;
}

static void read_metadata_kernel(struct ft_cursor *cursor, struct gpu_code *code)
{
	static const struct {
		const char *name;
		size_t offset;
	} wanted[] = {
	        {".max_flat_workgroup_size", offsetof(struct gpu_code, max_threads)},
	        {".vgpr_count", offsetof(struct gpu_code, registers)},
	        {".vgpr_spill_count", offsetof(struct gpu_code, spills)},
	        {".group_segment_fixed_size", offsetof(struct gpu_code, shared)},
	        {".private_segment_fixed_size", offsetof(struct gpu_code, local)},
	        {".wavefront_size", offsetof(struct gpu_code, wave)},
	};
	struct gpu_code found = {0};
	bool this_one = false;
	uint32_t pairs;

	if (!ft_read_map(cursor, &pairs))
		return;
	while (pairs-- > 0) {
		char key[64] = "";
		struct ft_view view;
		bool known = false;

		if (!ft_read_text_into(cursor, key, sizeof key) && !ft_read_view(cursor, &view))
			return;
		if (strcmp(key, ".name") == 0) {
			char name[sizeof code->symbol] = "";

			if (!ft_read_text_into(cursor, name, sizeof name))
				return;
			this_one = strcmp(name, code->symbol) == 0;
			continue;
		}
		for (size_t i = 0; i < sizeof wanted / sizeof *wanted && !known; i++)
			if (strcmp(key, wanted[i].name) == 0)
				known = ft_read_uint(
				        cursor, (uint64_t *)(void *)((char *)&found + wanted[i].offset));
		if (!known && !ft_read_view(cursor, &view))
			return;
	}
	if (!this_one)
		return;
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
		memcpy((char *)code + wanted[i].offset, (char *)&found + wanted[i].offset, sizeof(uint64_t));
}

/* AMD's metadata is MessagePack in a note. */
static void read_amd_note(const uint8_t *data, size_t size, struct gpu_code *code)
{
	while (size >= sizeof(Elf64_Nhdr)) {
		Elf64_Nhdr note;

		memcpy(&note, data, sizeof note);
		uint64_t name = ((uint64_t)note.n_namesz + 3) & ~UINT64_C(3);
		uint64_t body = ((uint64_t)note.n_descsz + 3) & ~UINT64_C(3);

		if (size - sizeof note < name + note.n_descsz)
			return;
		if (note.n_type == NOTE_AMDGPU_METADATA) {
			struct ft_cursor cursor = ft_cursor_of(data + sizeof note + name, note.n_descsz);
			uint32_t pairs, kernels;

			if (!ft_read_map(&cursor, &pairs))
				return;
			while (pairs-- > 0) {
				char key[64] = "";
				struct ft_view view;

				if (!ft_read_text_into(&cursor, key, sizeof key))
					return;
				if (strcmp(key, "amdhsa.target") == 0) {
					if (!ft_read_text_into(&cursor, code->target, sizeof code->target))
						return;
				} else if (strcmp(key, "amdhsa.kernels") == 0 &&
				        ft_read_array(&cursor, &kernels)) {
					while (kernels-- > 0)
						read_metadata_kernel(&cursor, code);
				} else if (!ft_read_view(&cursor, &view)) {
					return;
				}
			}
		}
		if (size - sizeof note < name + body)
			return;
		data += sizeof note + name + body;
		size -= sizeof note + name + body;
	}
}

/* NVIDIA's attributes of a kernel: the block that it was bounded to. */
static void read_nvidia_info(const uint8_t *data, size_t size, struct gpu_code *code)
{
	enum { SIZED = 4, MAX_THREADS = 5 };

	while (size >= 4) {
		uint16_t length = (uint16_t)(data[2] | data[3] << 8);
		size_t all = data[0] == SIZED ? 4u + length : 4u;

		if (all > size)
			return;
		if (data[0] == SIZED && data[1] == MAX_THREADS && length >= 12) {
			uint32_t threads[3];

			memcpy(threads, data + 4, sizeof threads);
			code->max_threads = (uint64_t)threads[0] * threads[1] * threads[2];
		}
		data += all;
		size -= all;
	}
}

/* "ptxas info    : Used 47 registers, used 1 barriers, 64 bytes smem" */
static void read_assembler_log(const char *log, struct gpu_code *code)
{
	const char *function = strstr(log, code->symbol);
	const char *at = function ? function : log;
	const char *found = strstr(at, "Used ");

	if (found)
		code->registers = strtoull(found + strlen("Used "), NULL, 10);
	found = found ? strstr(found, " bytes smem") : NULL;
	if (found) {
		while (found > at && found[-1] >= '0' && found[-1] <= '9')
			found--;
		code->shared = strtoull(found, NULL, 10);
	}
	found = strstr(at, " bytes stack frame");
	if (found) {
		while (found > at && found[-1] >= '0' && found[-1] <= '9')
			found--;
		code->local = strtoull(found, NULL, 10);
		found = strstr(found, "frame, ");
		if (found)
			code->spills = strtoull(found + strlen("frame, "), NULL, 10);
	}
}

int gpu_code_inspect(struct gpu_code *code, const char *symbol, const char *log, const char *launch,
        struct ft_error *error)
{
	XXH3_state_t state;
	XXH128_canonical_t canonical;
	struct sections elf = {0};
	char info[128];

	snprintf(code->symbol, sizeof code->symbol, "%s", symbol);
	if (open_sections(&elf, code->data, code->size, error) < 0)
		return -1;
	snprintf(info, sizeof info, ".nv.info.%s", symbol);
	XXH3_128bits_reset(&state);
	for (unsigned i = 0; i < elf.header->e_shnum; i++) {
		const Elf64_Shdr *section = &elf.section[i];
		const char *name = section_name(&elf, section);
		const uint8_t *data = elf.data + section->sh_offset;

		if (section->sh_type == SHT_NOBITS)
			continue;
		if (section->sh_type == SHT_NOTE)
			read_amd_note(data, section->sh_size, code);
		if (strcmp(name, info) == 0)
			read_nvidia_info(data, section->sh_size, code);
		if (is_machine_code(name)) {
			XXH3_128bits_update(&state, name, strlen(name) + 1);
			XXH3_128bits_update(&state, data, section->sh_size);
		}
	}
	if (elf.header->e_machine == EM_CUDA)
		read_assembler_log(log, code);
	else
		code->version = (uint64_t)elf.header->e_ident[EI_ABIVERSION] + 2;
	/* How many blocks fit on a unit follows from these, and decides speed as the instructions do. */
	uint64_t numbers[] = {code->registers, code->shared, code->local, code->max_threads};

	XXH3_128bits_update(&state, numbers, sizeof numbers);
	XXH3_128bits_update(&state, launch, strlen(launch));
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
	for (size_t i = 0; i < sizeof canonical.digest; i++)
		snprintf(code->hash + 2 * i, 3, "%02x", canonical.digest[i]);
	return 0;
}

/* ---- keeping ---- */

int gpu_code_load(const char *folder, const char *key, struct gpu_code *code)
{
	char path[512], hash[FT_HASH_SIZE] = "";
	struct ft_code_file file;
	struct ft_code_step step;
	struct ft_cursor cursor;
	struct ft_view first;
	uint32_t steps;
	int descriptor;

	memset(code, 0, sizeof *code);
	snprintf(path, sizeof path, "%s/%s.key", folder, key);
	descriptor = open(path, O_RDONLY | O_CLOEXEC);
	if (descriptor < 0)
		return 0;
	if (pipe_read_all(descriptor, hash, sizeof hash - 1) < 0)
		hash[0] = '\0';
	close(descriptor);
	snprintf(path, sizeof path, "%s/%s.code", folder, hash);
	if (hash[0] == '\0' || ft_code_file_read(path, &file) != FT_CODE_WHOLE)
		return 0;
	cursor = ft_cursor_of(file.known.steps.data, file.known.steps.length);
	if (!ft_read_array(&cursor, &steps) || !ft_read_view(&cursor, &first) ||
	        ft_decode(&ft_code_step_message, first, &step, NULL) < 0) {
		free(file.data);
		return 0;
	}
	memcpy(code->hash, file.known.hash, sizeof code->hash);
	memcpy(code->symbol, step.symbol, sizeof code->symbol);
	memcpy(code->target, file.known.target, sizeof code->target);
	code->max_threads = file.known.max_threads;
	code->registers = file.known.registers;
	code->spills = file.known.spills;
	code->shared = file.known.shared;
	code->local = file.known.local;
	code->wave = file.known.wave;
	code->version = file.known.version;
	code->build_ns = file.known.build_ns;
	code->size = file.object.length;
	memmove(file.data, file.object.data, code->size);
	code->data = file.data;
	return 1;
}

/* Whole under its name, or not there: two runners may write the same at once. */
static int write_file(const char *folder, const char *name, const char *first, size_t first_size,
        const void *rest, size_t rest_size, struct ft_error *error)
{
	char path[512], passing[512];
	int descriptor;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	snprintf(passing, sizeof passing, "%s/.%s.%ld", folder, name, (long)getpid());
	descriptor = open(passing, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
	if (descriptor < 0)
		return ft_fail_errno(error, errno, "cannot write %s", passing);
	if (pipe_write_all(descriptor, first, first_size) < 0 ||
	        (rest_size && pipe_write_all(descriptor, rest, rest_size) < 0) || fsync(descriptor) < 0) {
		int number = errno;

		close(descriptor);
		unlink(passing);
		return ft_fail_errno(error, number, "cannot write %s", passing);
	}
	close(descriptor);
	if (rename(passing, path) < 0) {
		int number = errno;

		unlink(passing);
		return ft_fail_errno(error, number, "cannot rename %s to %s", passing, path);
	}
	return 0;
}

int gpu_code_keep(const char *folder, const char *key, const struct gpu_code *code,
        const struct gpu_about *launch, struct ft_error *error)
{
	static const struct gpu_about nothing = {.step.arguments = "none"};
	struct ft_code_about about = launch ? launch->code : nothing.code;
	struct ft_code_step step = launch ? launch->step : nothing.step;
	uint8_t header[HEADER_MAX], steps[STEPS_SIZE];
	struct ft_writer writer;
	char name[64];

	memcpy(about.hash, code->hash, sizeof about.hash);
	memcpy(step.symbol, code->symbol, sizeof step.symbol);
	ft_writer_init_fixed(&writer, steps, sizeof steps);
	ft_write_array(&writer, 1);
	ft_encode(&writer, &ft_code_step_message, &step);
	about.steps = (struct ft_view){writer.data, writer.length};
	snprintf(about.target, sizeof about.target, "%s", code->target[0] ? code->target : "unknown");
	about.max_threads = code->max_threads;
	about.registers = code->registers;
	about.spills = code->spills;
	about.shared = code->shared;
	about.local = code->local;
	if (code->wave)
		about.wave = code->wave;
	about.version = code->version;
	about.build_ns = code->build_ns;
	about.size = code->size;
	ft_hash_text(code->data, code->size, about.checksum);
	memcpy(header, FT_CODE_MAGIC, MAGIC_LENGTH);
	ft_writer_init_fixed(&writer, header + MAGIC_LENGTH, sizeof header - MAGIC_LENGTH);
	ft_encode(&writer, &ft_code_about_message, &about);
	if (!ft_writer_ok(&writer) || code->size > FT_CODE_BYTES_MAX)
		return ft_fail(error, FT_E_UNAVAILABLE, "the code is too large to be kept");
	snprintf(name, sizeof name, "%s.code", code->hash);
	if (write_file(folder, name, (const char *)header, MAGIC_LENGTH + writer.length, code->data,
	            code->size, error) < 0)
		return -1;
	snprintf(name, sizeof name, "%s.key", key);
	return write_file(folder, name, code->hash, strlen(code->hash), NULL, 0, error);
}

#include "kernels/runner/gpu/gpu_devices.h"

#include <ctype.h>
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/host.h"

/* A file's first `size` bytes at most, without trailing white space; "" if it cannot be read. */
static void read_text(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void read_text(char *text, size_t size, const char *format, ...)
{
	char path[512];
	va_list arguments;
	ssize_t got = -1;
	int descriptor;

	va_start(arguments, format);
	vsnprintf(path, sizeof path, format, arguments);
	va_end(arguments);
	descriptor = open(path, O_RDONLY | O_CLOEXEC);
	if (descriptor >= 0) {
		got = read(descriptor, text, size - 1);
		close(descriptor);
	}
	text[got > 0 ? got : 0] = '\0';
	for (size_t length = strlen(text); length > 0 && isspace((unsigned char)text[length - 1]); length--)
		text[length - 1] = '\0';
}

/* The number of a line "NAME NUMBER". */
static uint64_t property(const char *text, const char *name)
{
	size_t length = strlen(name);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		if (*line == '\n')
			line++;
		if (strncmp(line, name, length) == 0 && line[length] == ' ')
			return strtoull(line + length + 1, NULL, 10);
	}
	return 0;
}

static uint64_t hexadecimal(const char *text)
{
	return strtoull(text, NULL, 16);
}

void gpu_driver_version(const char *root, const char *module, char *text, size_t size)
{
	read_text(text, size, "%s/sys/module/%s/version", root, module);
	if (!text[0])
		read_text(text, size, "%s/sys/module/%s/srcversion", root, module);
	if (!text[0])
		read_text(text, size, "%s/proc/sys/kernel/osrelease", root);
}

void gpu_build_id(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "re");
	Elf64_Ehdr header;

	text[0] = '\0';
	if (!file)
		return;
	if (fread(&header, sizeof header, 1, file) != 1 || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
	        header.e_phentsize != sizeof(Elf64_Phdr))
		goto done;
	for (unsigned i = 0; i < header.e_phnum && !text[0]; i++) {
		struct {
			Elf64_Nhdr header;
			unsigned char rest[256];
		} note;
		Elf64_Phdr segment;
		size_t length;

		if (fseek(file, (long)(header.e_phoff + i * sizeof segment), SEEK_SET) < 0 ||
		        fread(&segment, sizeof segment, 1, file) != 1)
			break;
		if (segment.p_type != PT_NOTE || segment.p_filesz < sizeof note.header)
			continue;
		for (uint64_t at = 0; at + sizeof note.header < segment.p_filesz;) {
			if (fseek(file, (long)(segment.p_offset + at), SEEK_SET) < 0)
				break;
			length = fread(&note, 1, sizeof note, file);
			if (length < sizeof note.header)
				break;
			uint64_t name = ((uint64_t)note.header.n_namesz + 3) & ~UINT64_C(3);
			uint64_t body = ((uint64_t)note.header.n_descsz + 3) & ~UINT64_C(3);

			if (note.header.n_type == NT_GNU_BUILD_ID && name == 4 &&
			        memcmp(note.rest, "GNU", 4) == 0 && note.header.n_descsz <= 64)
				for (uint32_t b = 0; b < note.header.n_descsz && 2 * b + 2 < size; b++)
					snprintf(text + (size_t)2 * b, 3, "%02x", note.rest[name + b]);
			at += sizeof note.header + name + body;
		}
	}
done:
	fclose(file);
}

static void pci_ids(const char *root, const char *pci, char *text, size_t size)
{
	char vendor[16], device[16], subvendor[16], subdevice[16], revision[16];

	read_text(vendor, sizeof vendor, "%s/sys/bus/pci/devices/%s/vendor", root, pci);
	read_text(device, sizeof device, "%s/sys/bus/pci/devices/%s/device", root, pci);
	read_text(subvendor, sizeof subvendor, "%s/sys/bus/pci/devices/%s/subsystem_vendor", root, pci);
	read_text(subdevice, sizeof subdevice, "%s/sys/bus/pci/devices/%s/subsystem_device", root, pci);
	read_text(revision, sizeof revision, "%s/sys/bus/pci/devices/%s/revision", root, pci);
	snprintf(text, size,
	        "%04" PRIx64 ":%04" PRIx64 " board=%04" PRIx64 ":%04" PRIx64 " revision=%02" PRIx64,
	        hexadecimal(vendor), hexadecimal(device), hexadecimal(subvendor), hexadecimal(subdevice),
	        hexadecimal(revision));
}

/* ---- AMD ---- */

static const char topology[] = "sys/class/kfd/kfd/topology/nodes";

static int by_number(const struct dirent **a, const struct dirent **b)
{
	long left = strtol((*a)->d_name, NULL, 10), right = strtol((*b)->d_name, NULL, 10);

	return left < right ? -1 : left > right;
}

static int is_number(const struct dirent *entry)
{
	return isdigit((unsigned char)entry->d_name[0]);
}

/* The bytes of the last cache before memory, of one device: its slices on all dies together. */
static uint64_t last_cache(const char *root, const char *node)
{
	uint64_t level_size[4] = {0};
	char text[4096];

	for (unsigned i = 0; i < 4096; i++) {
		read_text(text, sizeof text, "%s/%s/%s/caches/%u/properties", root, topology, node, i);
		if (!text[0])
			break;
		uint64_t level = property(text, "level");

		if (level < 4)
			level_size[level] += property(text, "size") * 1024;
	}
	return level_size[3] ? level_size[3] : level_size[2];
}

static uint64_t memory_bytes(const char *root, const char *node)
{
	char text[1024];
	uint64_t sum = 0;

	for (unsigned i = 0; i < 16; i++) {
		read_text(text, sizeof text, "%s/%s/%s/mem_banks/%u/properties", root, topology, node, i);
		if (!text[0])
			break;
		/* 1 and 2 are the frame buffer, seen by the host and not */
		if (property(text, "heap_type") == 1 || property(text, "heap_type") == 2)
			sum += property(text, "size_in_bytes");
	}
	return sum;
}

/* What a launch may have: the kernel shows the memory that a group shares; the rest is the architecture's, and the same on
 * every one for threads. */
static void bound_amd(const char *properties, struct ft_runner_device *shown)
{
	const bool large = strncmp(shown->arch, "gfx90a", 6) == 0 || strncmp(shown->arch, "gfx94", 5) == 0 ||
	        strncmp(shown->arch, "gfx95", 5) == 0;

	shown->shared_block = property(properties, "lds_size_in_kb") * 1024;
	shown->threads_block = 1024;
	shown->registers = large ? 131072 : 65536;
}

static bool amd_node(const char *root, const char *node, size_t index, struct ft_backend_device *device)
{
	char text[8192], pci[16], ids[64], compute[32], memory[32], name[128];
	struct ft_runner_device *shown = &device->shown;

	read_text(text, sizeof text, "%s/%s/%s/properties", root, topology, node);
	uint64_t simds = property(text, "simd_count");
	uint64_t each = property(text, "simd_per_cu");
	uint64_t target = property(text, "gfx_target_version");
	uint64_t place = property(text, "location_id");

	if (simds == 0 || target == 0)
		return false;
	memset(device, 0, sizeof *device);
	snprintf(pci, sizeof pci, "%04x:%02x:%02x.%x", (unsigned)property(text, "domain") & 0xffff,
	        (unsigned)(place >> 8) & 0xff, (unsigned)(place >> 3) & 0x1f, (unsigned)place & 7);
	pci_ids(root, pci, ids, sizeof ids);
	read_text(compute, sizeof compute, "%s/sys/bus/pci/devices/%s/current_compute_partition", root, pci);
	read_text(memory, sizeof memory, "%s/sys/bus/pci/devices/%s/current_memory_partition", root, pci);
	read_text(name, sizeof name, "%s/sys/bus/pci/devices/%s/product_name", root, pci);
	if (!name[0])
		read_text(name, sizeof name, "%s/%s/%s/name", root, topology, node);
	snprintf(shown->id, sizeof shown->id, "hip:%zu", index);
	snprintf(shown->kind, sizeof shown->kind, "hip");
	snprintf(shown->name, sizeof shown->name, "%s", name[0] ? name : "AMD GPU");
	snprintf(shown->arch, sizeof shown->arch, "gfx%u%x%x", (unsigned)(target / 10000),
	        (unsigned)(target / 100 % 100), (unsigned)(target % 100));
	snprintf(shown->pci, sizeof shown->pci, "%s", pci);
	shown->units = simds / (each ? each : 4);
	shown->wave = property(text, "wave_front_size");
	shown->memory = memory_bytes(root, node);
	shown->cache = last_cache(root, node);
	/* The capability word holds whether memory is checked (sramecc) and faults can be retried (xnack). */
	snprintf(shown->identity, sizeof shown->identity,
	        "arch=%s units=%" PRIu64 " pci=%s dies=%" PRIu64 " compute=%s memory=%s capability=%" PRIx64
	        " bytes=%" PRIu64 "GiB cache=%" PRIu64 "KiB clock=%" PRIu64,
	        shown->arch, shown->units, ids, property(text, "num_xcc") ? property(text, "num_xcc") : 1,
	        compute[0] ? compute : "whole", memory[0] ? memory : "whole", property(text, "capability"),
	        (shown->memory + (1u << 29)) >> 30, shown->cache >> 10,
	        property(text, "max_engine_clk_fcompute"));
	bound_amd(text, shown);
	ft_traits_of(shown, &device->traits);
	return true;
}

size_t gpu_devices_amd(const char *root, struct ft_backend_device *device, char reason[FT_REASON_SIZE])
{
	struct dirent **entry;
	char path[512];
	size_t found = 0;
	int entries;

	snprintf(path, sizeof path, "%s/%s", root, topology);
	entries = scandir(path, &entry, is_number, by_number);
	if (entries < 0) {
		snprintf(reason, FT_REASON_SIZE,
		        "no AMD GPU: the kernel shows no /%s (is the amdgpu module loaded?)", topology);
		return 0;
	}
	for (int i = 0; i < entries; i++) {
		if (found < GPU_DEVICES_MAX && amd_node(root, entry[i]->d_name, found, &device[found]))
			found++;
		free(entry[i]);
	}
	free(entry);
	if (found == 0)
		snprintf(reason, FT_REASON_SIZE, "no AMD GPU: none of the nodes in /%s is one", topology);
	return found;
}

/* ---- NVIDIA ---- */

static int attribute(const struct hip *hip, enum hip_attribute which, int device)
{
	int value = 0;

	if (hip->DeviceGetAttribute(&value, hip->attribute[which], device))
		return 0;
	return value;
}

size_t gpu_devices_nvidia(const struct hip *hip, const char *root, struct ft_backend_device *device,
        char reason[FT_REASON_SIZE])
{
	int count = 0;
	hip_error failed = hip->GetDeviceCount(&count);
	size_t found = 0;

	if (failed || count == 0) {
		snprintf(reason, FT_REASON_SIZE, "no NVIDIA GPU: %s",
		        failed ? hip->GetErrorString(hip, failed) : "the driver counts none");
		return 0;
	}
	for (int i = 0; i < count && found < GPU_DEVICES_MAX; i++) {
		struct ft_backend_device *one = &device[found];
		struct ft_runner_device *shown = &one->shown;
		char pci[32] = "", ids[64];
		size_t memory = 0;

		memset(one, 0, sizeof *one);
		if (hip->DeviceTotalMem(&memory, i) ||
		        hip->DeviceGetName(shown->name, sizeof shown->name, i) ||
		        hip->DeviceGetPCIBusId(pci, sizeof pci, i))
			continue;
		for (char *c = pci; *c; c++)
			*c = (char)tolower((unsigned char)*c);
		pci_ids(root, pci, ids, sizeof ids);
		snprintf(shown->id, sizeof shown->id, "cuda:%d", i);
		snprintf(shown->kind, sizeof shown->kind, "cuda");
		snprintf(shown->arch, sizeof shown->arch, "sm_%d%d", attribute(hip, HIP_ATTRIBUTE_MAJOR, i),
		        attribute(hip, HIP_ATTRIBUTE_MINOR, i));
		snprintf(shown->pci, sizeof shown->pci, "%.15s", pci);
		shown->units = (uint64_t)attribute(hip, HIP_ATTRIBUTE_UNITS, i);
		shown->wave = (uint64_t)attribute(hip, HIP_ATTRIBUTE_WAVE, i);
		shown->memory = memory;
		shown->cache = (uint64_t)attribute(hip, HIP_ATTRIBUTE_L2, i);
		/* A slice of a GPU has fewer units, less memory and less cache, and a name that says so. */
		snprintf(shown->identity, sizeof shown->identity,
		        "arch=%s units=%" PRIu64 " pci=%s bytes=%" PRIu64 "GiB cache=%" PRIu64
		        "KiB bus=%d clock=%d ecc=%d part=%s",
		        shown->arch, shown->units, ids, (shown->memory + (1u << 29)) >> 30,
		        shown->cache >> 10, attribute(hip, HIP_ATTRIBUTE_MEMORY_BITS, i),
		        attribute(hip, HIP_ATTRIBUTE_MEMORY_CLOCK, i), attribute(hip, HIP_ATTRIBUTE_ECC, i),
		        strstr(shown->name, " MIG ") ? "mig" : "whole");
		shown->shared_block = (uint64_t)attribute(hip, HIP_ATTRIBUTE_SHARED_BLOCK, i);
		shown->threads_block = (uint64_t)attribute(hip, HIP_ATTRIBUTE_THREADS_BLOCK, i);
		shown->registers = (uint64_t)attribute(hip, HIP_ATTRIBUTE_REGISTERS_BLOCK, i);
		ft_traits_of(shown, &one->traits);
		found++;
	}
	return found;
}

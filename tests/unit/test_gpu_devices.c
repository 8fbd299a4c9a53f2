#include "tests/unit/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/runner/gpu/gpu_devices.h"
#include "tests/unit/folder_help.h"

/* AMD's devices as a kernel would show them below a folder of the test's own. */

static char root[32];

#define put(text, ...) folder_put(root, text, __VA_ARGS__)

struct made_up {
	unsigned node, bus, function;
	unsigned simds, each, target, wave;
	unsigned dies;
	const char *chip, *revision, *board;
	const char *compute, *memory; /* partitions; NULL: the kernel shows none */
	unsigned long long bytes;
	unsigned cache_kib, clock;
};

static const struct made_up mi300x = {.node = 2,
        .bus = 0xc1,
        .simds = 1216,
        .each = 4,
        .target = 90402,
        .wave = 64,
        .dies = 8,
        .chip = "0x74a1",
        .revision = "0x00",
        .board = "0x74a1",
        .compute = "SPX",
        .memory = "NPS1",
        .bytes = 206141652992ULL,
        .cache_kib = 262144,
        .clock = 2100};

static void show(const struct made_up *device)
{
	char text[1024], pci[16];

	snprintf(text, sizeof text,
	        "cpu_cores_count 0\nsimd_count %u\nmem_banks_count 1\nsimd_per_cu %u\nwave_front_size %u\n"
	        "gfx_target_version %u\nvendor_id 4098\nlocation_id %u\ndomain 0\nmax_engine_clk_fcompute "
	        "%u\n"
	        "num_xcc %u\ncapability 746073728\nlds_size_in_kb 64\n",
	        device->simds, device->each, device->wave, device->target,
	        device->bus << 8 | device->function, device->clock, device->dies);
	put(text, "sys/class/kfd/kfd/topology/nodes/%u/properties", device->node);
	snprintf(text, sizeof text, "heap_type 1\nsize_in_bytes %llu\n", device->bytes);
	put(text, "sys/class/kfd/kfd/topology/nodes/%u/mem_banks/0/properties", device->node);
	put("level 1\nsize 32\n", "sys/class/kfd/kfd/topology/nodes/%u/caches/0/properties", device->node);
	snprintf(text, sizeof text, "level 3\nsize %u\n", device->cache_kib);
	put(text, "sys/class/kfd/kfd/topology/nodes/%u/caches/1/properties", device->node);
	snprintf(pci, sizeof pci, "0000:%02x:00.%x", device->bus, device->function);
	put("0x1002\n", "sys/bus/pci/devices/%s/vendor", pci);
	put(device->chip, "sys/bus/pci/devices/%s/device", pci);
	put("0x1002\n", "sys/bus/pci/devices/%s/subsystem_vendor", pci);
	put(device->board, "sys/bus/pci/devices/%s/subsystem_device", pci);
	put(device->revision, "sys/bus/pci/devices/%s/revision", pci);
	put("AMD Radeon Graphics\n", "sys/bus/pci/devices/%s/product_name", pci);
	if (device->compute)
		put(device->compute, "sys/bus/pci/devices/%s/current_compute_partition", pci);
	if (device->memory)
		put(device->memory, "sys/bus/pci/devices/%s/current_memory_partition", pci);
}

static int begin(void **state)
{
	(void)state;
	snprintf(root, sizeof root, "/tmp/flytune-devices-XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	return folder_remove(root);
}

struct found {
	struct ft_backend_device device[GPU_DEVICES_MAX];
	size_t count;
	char reason[FT_REASON_SIZE];
};

static struct found *look(void)
{
	static struct found found;

	memset(&found, 0, sizeof found);
	found.count = gpu_devices_amd(root, found.device, found.reason);
	return &found;
}

static void what_the_kernel_shows_is_read(void **state)
{
	struct found *found;

	(void)state;
	/* The host's processor is a node, too. */
	put("cpu_cores_count 96\nsimd_count 0\ngfx_target_version 0\n",
	        "sys/class/kfd/kfd/topology/nodes/0/properties");
	show(&mi300x);
	found = look();
	assert_int_equal(found->count, 1);
	const struct ft_runner_device *device = &found->device[0].shown;

	assert_string_equal(device->id, "hip:0");
	assert_string_equal(device->arch, "gfx942");
	assert_string_equal(device->pci, "0000:c1:00.0");
	assert_int_equal(device->units, 304);
	assert_int_equal(device->wave, 64);
	assert_int_equal(device->cache, 262144 * 1024);
	assert_true(device->memory == mi300x.bytes);
	assert_string_equal(found->device[0].traits.arch, "gfx942");
	assert_int_equal(found->device[0].traits.shared_block, 65536);
	assert_int_equal(found->device[0].traits.threads_block, 1024);
	assert_int_equal(found->device[0].traits.registers, 131072);
	assert_true(found->device[0].traits.memory == mi300x.bytes);
}

static void architectures_are_named_as_compilers_name_them(void **state)
{
	static const struct {
		unsigned number;
		const char *name;
	} known[] = {{90006, "gfx906"}, {90008, "gfx908"}, {90010, "gfx90a"}, {90402, "gfx942"},
	        {90500, "gfx950"}, {100300, "gfx1030"}, {110000, "gfx1100"}, {110501, "gfx1151"},
	        {120001, "gfx1201"}};

	(void)state;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		struct made_up device = mi300x;

		device.node = (unsigned)i;
		device.bus = 1 + (unsigned)i;
		device.target = known[i].number;
		show(&device);
	}
	struct found *found = look();

	assert_int_equal(found->count, sizeof known / sizeof *known);
	for (size_t i = 0; i < found->count; i++)
		assert_string_equal(found->device[i].shown.arch, known[i].name);
}

/* Two devices that differ in one thing that decides speed share no results; equal ones do, wherever they sit. */
static void all_that_decides_speed_is_in_the_identity(void **state)
{
	struct made_up other[9];
	struct found *found;
	struct made_up twin = mi300x;

	(void)state;
	for (size_t i = 0; i < 9; i++) {
		other[i] = mi300x;
		other[i].node = 10 + (unsigned)i;
		other[i].bus = 0x10 + (unsigned)i;
	}
	other[0].simds = 320;         /* MI308X: fewer units, the same name */
	other[1].chip = "0x74a5\n";   /* MI325X: another chip, the same count */
	other[2].revision = "0x01\n"; /* another revision of the chip */
	other[3].board = "0x74a9\n";  /* another board */
	other[4].compute = "CPX\n";   /* an eighth of the die, were the count the same */
	other[5].memory = "NPS4\n";   /* memory interleaved over a quarter */
	other[6].bytes *= 2;
	other[7].cache_kib /= 2;
	other[8].clock = 1700;
	twin.node = 3;
	twin.bus = 0xc2;
	show(&mi300x);
	show(&twin);
	for (size_t i = 0; i < 9; i++)
		show(&other[i]);
	found = look();
	assert_int_equal(found->count, 11);
	assert_string_equal(found->device[0].shown.identity, found->device[1].shown.identity);
	assert_string_not_equal(found->device[0].shown.pci, found->device[1].shown.pci);
	for (size_t i = 2; i < found->count; i++)
		for (size_t j = 0; j < i; j++)
			if (i != 1 || j != 0)
				assert_string_not_equal(
				        found->device[i].shown.identity, found->device[j].shown.identity);
}

/* RDNA's runtimes count pairs of units, or units, as the environment says; the kernel counts SIMDs. */
static void units_do_not_hang_on_the_environment(void **state)
{
	struct made_up rdna = mi300x;
	uint64_t units;

	(void)state;
	rdna.simds = 192;
	rdna.each = 2;
	rdna.target = 110000;
	rdna.wave = 32;
	show(&rdna);
	units = look()->device[0].shown.units;
	assert_int_equal(units, 96);
	setenv("GPU_ENABLE_WGP_MODE", "0", 1);
	assert_int_equal(look()->device[0].shown.units, units);
	unsetenv("GPU_ENABLE_WGP_MODE");
}

/* Partitions of one card are functions of one slot, and devices of their own. */
static void partitions_are_devices_of_their_own(void **state)
{
	struct found *found;

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		struct made_up part = mi300x;

		part.node = 2 + i;
		part.function = i;
		part.simds = 152;
		part.dies = 1;
		part.compute = "CPX\n";
		show(&part);
	}
	found = look();
	assert_int_equal(found->count, 8);
	assert_string_equal(found->device[7].shown.pci, "0000:c1:00.7");
	assert_string_equal(found->device[7].shown.id, "hip:7");
	assert_string_equal(found->device[0].shown.identity, found->device[7].shown.identity);
	assert_non_null(strstr(found->device[0].shown.identity, "compute=CPX"));
	assert_non_null(strstr(found->device[0].shown.identity, "units=38"));
}

static void an_absent_or_strange_kernel_is_told_not_crashed_on(void **state)
{
	struct found *found = look();

	(void)state;
	assert_int_equal(found->count, 0);
	assert_non_null(strstr(found->reason, "amdgpu"));
	put("", "sys/class/kfd/kfd/topology/nodes/0/properties");
	put("simd_count\nsimd_count x\ngfx_target_version -1\n",
	        "sys/class/kfd/kfd/topology/nodes/1/properties");
	put("simd_count 18446744073709551615\ngfx_target_version 4294967295\n",
	        "sys/class/kfd/kfd/topology/nodes/12345678901234567890/properties");
	found = look();
	assert_true(found->count <= 2);
	for (size_t i = 0; i < found->count; i++)
		assert_non_null(memchr(found->device[i].shown.arch, 0, sizeof found->device[i].shown.arch));
}

static void more_devices_than_there_is_room_for_are_left_out(void **state)
{
	(void)state;
	for (unsigned i = 0; i < GPU_DEVICES_MAX + 3; i++) {
		struct made_up device = mi300x;

		device.node = i;
		device.bus = i;
		show(&device);
	}
	assert_int_equal(look()->count, GPU_DEVICES_MAX);
}

static void a_driver_is_known_by_its_version(void **state)
{
	char text[64];

	(void)state;
	gpu_driver_version(root, "amdgpu", text, sizeof text);
	assert_string_equal(text, "");
	put("5.10.0-rc1\n", "proc/sys/kernel/osrelease");
	gpu_driver_version(root, "amdgpu", text, sizeof text);
	assert_string_equal(text, "5.10.0-rc1");
	put("0123ABCD\n", "sys/module/amdgpu/srcversion");
	gpu_driver_version(root, "amdgpu", text, sizeof text);
	assert_string_equal(text, "0123ABCD");
	put("6.3.6\n", "sys/module/amdgpu/version");
	gpu_driver_version(root, "amdgpu", text, sizeof text);
	assert_string_equal(text, "6.3.6");
}

static void a_file_has_its_build_id_or_none(void **state)
{
	char text[80];

	(void)state;
	gpu_build_id("/proc/self/exe", text, sizeof text);
	assert_true(strspn(text, "0123456789abcdef") == strlen(text));
	put("not an object", "file");
	char path[256];

	snprintf(path, sizeof path, "%s/file", root);
	gpu_build_id(path, text, sizeof text);
	assert_string_equal(text, "");
	gpu_build_id("/nonexistent", text, sizeof text);
	assert_string_equal(text, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(what_the_kernel_shows_is_read, begin, end),
	        cmocka_unit_test_setup_teardown(architectures_are_named_as_compilers_name_them, begin, end),
	        cmocka_unit_test_setup_teardown(all_that_decides_speed_is_in_the_identity, begin, end),
	        cmocka_unit_test_setup_teardown(units_do_not_hang_on_the_environment, begin, end),
	        cmocka_unit_test_setup_teardown(partitions_are_devices_of_their_own, begin, end),
	        cmocka_unit_test_setup_teardown(
	                an_absent_or_strange_kernel_is_told_not_crashed_on, begin, end),
	        cmocka_unit_test_setup_teardown(more_devices_than_there_is_room_for_are_left_out, begin, end),
	        cmocka_unit_test_setup_teardown(a_driver_is_known_by_its_version, begin, end),
	        cmocka_unit_test_setup_teardown(a_file_has_its_build_id_or_none, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

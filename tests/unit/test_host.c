/* What a process may use of its machine: affinity as a kernel would tell it, control groups below a folder of the test's
 * own. */
#include "tests/unit/check.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/host.h"
#include "tests/unit/folder_help.h"

static char root[32];
static unsigned long made_up[FT_CPUS_MAX / (8 * sizeof(unsigned long))];
static size_t kernel_bytes; /* of the machine's own mask; 0: the real call */

int __real_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *mask);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *mask);

int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *mask)
{
	if (kernel_bytes == 0)
		return __real_sched_getaffinity(pid, size, mask);
	if (size < kernel_bytes) {
		errno = EINVAL;
		return -1;
	}
	memset(mask, 0, size);
	memcpy(mask, made_up, kernel_bytes);
	return 0;
}

static void may_run_on(unsigned cpu)
{
	made_up[cpu / (8 * sizeof(long))] |= 1UL << (cpu % (8 * sizeof(long)));
}

static int begin(void **state)
{
	(void)state;
	snprintf(root, sizeof root, "/tmp/flytune-host-XXXXXX");
	memset(made_up, 0, sizeof made_up);
	kernel_bytes = sizeof(cpu_set_t);
	for (unsigned cpu = 0; cpu < 8; cpu++)
		may_run_on(cpu);
	return mkdtemp(root) ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	kernel_bytes = 0;
	return folder_remove(root);
}

static const struct ft_allowance *look(void)
{
	static struct ft_allowance allowance;

	ft_allowance_read(root, &allowance);
	return &allowance;
}

static void without_groups_all_cores_may_be_used(void **state)
{
	(void)state;
	assert_int_equal(look()->cores, 8);
	assert_true(look()->quota == UINT64_MAX && look()->memory == UINT64_MAX);
	assert_int_equal(ft_allowance_units(look()), 8);
}

static void the_tightest_group_on_the_way_up_binds(void **state)
{
	(void)state;
	folder_put(root, "0::/system.slice/flytuned.service\n", "proc/self/cgroup");
	folder_put(root, "max 100000\n", "sys/fs/cgroup/system.slice/flytuned.service/cpu.max");
	folder_put(root, "max\n", "sys/fs/cgroup/system.slice/flytuned.service/memory.max");
	assert_true(look()->quota == UINT64_MAX && look()->memory == UINT64_MAX);
	folder_put(root, "350000 100000\n", "sys/fs/cgroup/system.slice/cpu.max");
	folder_put(root, "4000000\n", "sys/fs/cgroup/system.slice/memory.max");
	assert_int_equal(look()->quota, 3500);
	assert_int_equal(ft_allowance_units(look()), 4);
	assert_int_equal(look()->memory, 4000000);
	folder_put(root, "50000 50000\n", "sys/fs/cgroup/system.slice/flytuned.service/cpu.max");
	folder_put(root, "3000000\n", "sys/fs/cgroup/system.slice/flytuned.service/memory.max");
	assert_int_equal(look()->quota, 1000);
	assert_int_equal(look()->memory, 3000000);
}

static void groups_of_version_1_bind_as_well(void **state)
{
	(void)state;
	folder_put(root, "9:name=systemd:/a\n4:memory:/a/b\n2:cpu,cpuacct:/a/b\n1:cpuset:/\n0::/\n",
	        "proc/self/cgroup");
	folder_put(root, "-1\n", "sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us");
	folder_put(root, "100000\n", "sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us");
	folder_put(root, "9223372036854771712\n", "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes");
	assert_true(look()->quota == UINT64_MAX && look()->memory == UINT64_MAX);
	folder_put(root, "25000\n", "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us");
	folder_put(root, "100000\n", "sys/fs/cgroup/cpu/a/cpu.cfs_period_us");
	folder_put(root, "123456789\n", "sys/fs/cgroup/memory/memory.limit_in_bytes");
	assert_int_equal(look()->quota, 250);
	assert_int_equal(ft_allowance_units(look()), 1);
	assert_int_equal(look()->memory, 123456789);
}

/* Where a container sees its own part of the tree alone, and yet is told its place in the whole. */
static void a_container_that_sees_its_part_alone_is_bound_by_it(void **state)
{
	(void)state;
	folder_put(root, "2:cpu,cpuacct:/docker/0123\n", "proc/self/cgroup");
	folder_put(root, "200000\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us");
	folder_put(root, "100000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us");
	assert_int_equal(ft_allowance_units(look()), 2);
}

static void broken_files_bind_nothing(void **state)
{
	static const char *const texts[] = {"", "0::", "\n\n::\n", ":::::\n0", "0:cpu", "2:cpu:/a\n"};

	(void)state;
	folder_put(root, "many\n", "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us");
	folder_put(root, "5 0\n", "sys/fs/cgroup/cpu.max");
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		folder_put(root, texts[i], "%s", "proc/self/cgroup");
		assert_int_equal(ft_allowance_units(look()), 8);
	}
}

static void more_than_1024_cpus_are_counted_and_named(void **state)
{
	int number[FT_CPUS_MAX];
	struct ft_cpus one;

	(void)state;
	kernel_bytes = 4096 / 8; /* more than a cpu_set_t holds: the kernel refuses a smaller one */
	memset(made_up, 0, sizeof made_up);
	for (unsigned cpu = 0; cpu < 1536; cpu++)
		may_run_on(cpu);
	may_run_on(4095);
	assert_int_equal(look()->cores, 1537);
	assert_int_equal(ft_cpus_list(&look()->cpus, number, FT_CPUS_MAX), 1537);
	assert_int_equal(number[1535], 1535);
	assert_int_equal(number[1536], 4095);
	assert_int_equal(ft_cpus_list(&look()->cpus, number, 7), 7);
	ft_cpus_one(&one, 4095);
	assert_int_equal(ft_cpus_list(&one, number, FT_CPUS_MAX), 1);
	assert_int_equal(number[0], 4095);
}

static void what_may_change_shows_in_the_text(void **state)
{
	char before[128], after[128];

	(void)state;
	ft_allowance_print(look(), before, sizeof before);
	ft_allowance_print(look(), after, sizeof after);
	assert_string_equal(before, after);
	/* As many, but others. */
	made_up[0] = made_up[0] << 1;
	ft_allowance_print(look(), after, sizeof after);
	assert_string_not_equal(before, after);
	folder_put(root, "0::/a\n", "proc/self/cgroup");
	folder_put(root, "150000 100000\n", "sys/fs/cgroup/a/cpu.max");
	ft_allowance_print(look(), before, sizeof before);
	assert_string_not_equal(before, after);
	folder_put(root, "1000000\n", "sys/fs/cgroup/a/memory.max");
	ft_allowance_print(look(), after, sizeof after);
	assert_string_not_equal(before, after);
}

static void describe(struct ft_runner_device *shown)
{
	struct ft_traits traits = {.kind = "cpu"};

	memset(shown, 0, sizeof *shown);
	ft_host_traits(look(), &traits);
	ft_host_describe(root, look(), &traits, shown);
}

static void the_identity_holds_what_the_processor_is_and_what_is_left_of_it(void **state)
{
	struct ft_runner_device shown;

	(void)state;
	folder_put(root,
	        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n"
	        "model name\t: Some CPU @ 2=GHz\nstepping\t: 7\n",
	        "proc/cpuinfo");
	folder_put(root, "MemTotal:        1024 kB\nMemAvailable:    512 kB\n", "proc/meminfo");
	describe(&shown);
	assert_string_equal(shown.name, "Some CPU @ 2=GHz");
	assert_non_null(strstr(shown.identity,
	        " vendor=GenuineIntel family=6 model=85 stepping=7 implementer=- part=- "
	        "name=Some_CPU_@_2_GHz cores=8 cache="));
	assert_null(strstr(shown.identity, "quota"));
	assert_int_equal(shown.memory, 1048576);
	folder_put(root, "0::/a\n", "proc/self/cgroup");
	folder_put(root, "750000 100000\n", "sys/fs/cgroup/a/cpu.max");
	folder_put(root, "1000\n", "sys/fs/cgroup/memory.max");
	describe(&shown);
	assert_non_null(strstr(shown.identity, " cores=8 "));
	assert_non_null(strstr(shown.identity, " quota=7.500"));
	assert_true(shown.memory == 1000);
	/* More than there is binds nothing. */
	folder_put(root, "900000 100000\n", "sys/fs/cgroup/a/cpu.max");
	describe(&shown);
	assert_null(strstr(shown.identity, "quota"));
}

static void free_memory_is_what_the_groups_leave_besides_cached_files(void **state)
{
	(void)state;
	folder_put(root, "MemTotal: 10000 kB\nMemAvailable: 8000 kB\n", "proc/meminfo");
	assert_int_equal(ft_host_free_memory(root), 8000 * 1024);
	folder_put(root, "0::/a/b\n", "proc/self/cgroup");
	folder_put(root, "5000000\n", "sys/fs/cgroup/a/memory.max");
	folder_put(root, "4900000\n", "sys/fs/cgroup/a/memory.current");
	assert_int_equal(ft_host_free_memory(root), 100000);
	folder_put(
	        root, "anon 1000\ninactive_file 300000\nactive_file 100000\n", "sys/fs/cgroup/a/memory.stat");
	assert_int_equal(ft_host_free_memory(root), 500000);
	folder_put(root, "4:memory:/c\n", "proc/self/cgroup");
	folder_put(root, "6000000\n", "sys/fs/cgroup/memory/c/memory.limit_in_bytes");
	folder_put(root, "7000000\n", "sys/fs/cgroup/memory/c/memory.usage_in_bytes");
	folder_put(root, "total_inactive_file 1200000\n", "sys/fs/cgroup/memory/c/memory.stat");
	assert_int_equal(ft_host_free_memory(root), 200000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(without_groups_all_cores_may_be_used, begin, end),
	        cmocka_unit_test_setup_teardown(the_tightest_group_on_the_way_up_binds, begin, end),
	        cmocka_unit_test_setup_teardown(groups_of_version_1_bind_as_well, begin, end),
	        cmocka_unit_test_setup_teardown(
	                a_container_that_sees_its_part_alone_is_bound_by_it, begin, end),
	        cmocka_unit_test_setup_teardown(broken_files_bind_nothing, begin, end),
	        cmocka_unit_test_setup_teardown(more_than_1024_cpus_are_counted_and_named, begin, end),
	        cmocka_unit_test_setup_teardown(what_may_change_shows_in_the_text, begin, end),
	        cmocka_unit_test_setup_teardown(
	                the_identity_holds_what_the_processor_is_and_what_is_left_of_it, begin, end),
	        cmocka_unit_test_setup_teardown(
	                free_memory_is_what_the_groups_leave_besides_cached_files, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

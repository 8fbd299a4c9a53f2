/* What tests of the client library share: problems to ask for, and a count of what is open. */
#ifndef FLYTUNE_TESTS_CLIENT_HELP_H
#define FLYTUNE_TESTS_CLIENT_HELP_H

#include "check.h"

#include <dirent.h>

#include <flytune/admin.h>
#include <flytune/rmsnorm.h>

static inline flytune_problem *rmsnorm(int64_t m)
{
	struct flytune_rmsnorm shape;
	flytune_problem *problem;

	flytune_rmsnorm_init(&shape);
	shape.m = m;
	shape.n = 4096;
	shape.dtype = "bf16";
	problem = flytune_problem_rmsnorm(&shape, NULL);
	assert_non_null(problem);
	return problem;
}

static inline int count_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = 0;

	assert_non_null(directory);
	while (readdir(directory) != NULL)
		count++;
	closedir(directory);
	return count;
}

#endif

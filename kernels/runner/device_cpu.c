#include "kernels/runner/device_cpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_first(const char *path, const char *key, char *text, size_t size)
{
	char line[512];
	FILE *file = fopen(path, "re");
	text[0] = '\0';
	if (!file)
		return;
	while (fgets(line, sizeof(line), file)) {
		char *colon = strchr(line, ':');
		if (strncmp(line, key, strlen(key)) != 0 || !colon)
			continue;
		char rest = line[strlen(key)];
		if (rest != ' ' && rest != '\t' && rest != ':')
			continue;
		char *value = colon + 1;
		value += strspn(value, " \t");
		value[strcspn(value, "\n")] = '\0';
		snprintf(text, size, "%s", value);
		break;
	}
	fclose(file);
}

static uint64_t read_kib(const char *key)
{
	char text[64];
	read_first("/proc/meminfo", key, text, sizeof(text));
	return strtoull(text, NULL, 10) * 1024;
}

static uint64_t read_bytes(const char *path)
{
	char text[64] = "";
	FILE *file = fopen(path, "re");
	if (!file)
		return UINT64_MAX;
	char *line = fgets(text, sizeof(text), file);
	fclose(file);
	char *end;
	unsigned long long value = line ? strtoull(text, &end, 10) : 0;
	return !line || end == text ? UINT64_MAX : value; /* "max" is no number */
}

uint64_t ft_free_memory(void)
{
	uint64_t room = read_kib("MemAvailable");
	uint64_t most = read_bytes("/sys/fs/cgroup/memory.max");
	uint64_t used = read_bytes("/sys/fs/cgroup/memory.current");
	if (most != UINT64_MAX && used != UINT64_MAX) {
		uint64_t left = most > used ? most - used : 0;
		if (left < room)
			room = left;
	}
	return room;
}

/* For a "name=value" list: no spaces, nothing empty. */
static void as_word(char *text)
{
	for (char *c = text; *c; c++) {
		if (*c == ' ' || *c == '\t' || *c == '=')
			*c = '_';
	}
	if (!text[0]) {
		text[0] = '-';
		text[1] = '\0';
	}
}

void ft_describe_cpu(const struct ft_traits *traits, struct ft_runner_device *shown)
{
	char name[128];
	char vendor[64];
	char family[32];
	char model[32];
	char stepping[32];
	char implementer[32];
	char part[32];
	read_first("/proc/cpuinfo", "model name", name, sizeof(name));
	read_first("/proc/cpuinfo", "vendor_id", vendor, sizeof(vendor));
	read_first("/proc/cpuinfo", "cpu family", family, sizeof(family));
	read_first("/proc/cpuinfo", "model", model, sizeof(model));
	read_first("/proc/cpuinfo", "stepping", stepping, sizeof(stepping));
	read_first("/proc/cpuinfo", "CPU implementer", implementer, sizeof(implementer));
	read_first("/proc/cpuinfo", "CPU part", part, sizeof(part));
	snprintf(shown->id, sizeof(shown->id), "cpu:0");
	snprintf(shown->kind, sizeof(shown->kind), "cpu");
	snprintf(shown->name, sizeof(shown->name), "%s", name[0] ? name : "CPU");
	snprintf(shown->arch, sizeof(shown->arch), "%s", traits->arch);
	shown->units = traits->units;
	shown->memory = read_kib("MemTotal");
	shown->cache = traits->cache;
	as_word(name);
	as_word(vendor);
	as_word(family);
	as_word(model);
	as_word(stepping);
	as_word(implementer);
	as_word(part);
	snprintf(shown->identity, sizeof(shown->identity),
	        "arch=%s vendor=%s family=%s model=%s stepping=%s implementer=%s part=%s name=%s "
	        "cores=%" PRIu64 " cache=%" PRIu64,
	        traits->arch, vendor, family, model, stepping, implementer, part, name, traits->units,
	        traits->cache);
}

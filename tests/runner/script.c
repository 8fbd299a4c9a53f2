#include "tests/runner/script.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Noreturn void stop_with(const char *format, ...)
{
	char text[512];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	fprintf(stderr, "bad_runner: %s\n", text);
	exit(70);
}

long script_number(const char *text)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (errno || end == text || *end)
		stop_with("the script has %s where a number belongs", text);
	return value;
}

/* "at STEP [WHICH|*] [once] ACTION [ARGUMENT]" */
static void read_rule(struct script *script, char *line)
{
	struct rule *rule;
	char *save = NULL, *word;

	if (script->rule_count == RULES_MAX)
		stop_with("the script has more than %d rules", RULES_MAX);
	rule = &script->rule[script->rule_count++];
	rule->which = -1;
	rule->line = script->line;
	word = strtok_r(line, " ", &save);
	if (!word)
		stop_with("a rule of the script has no step");
	snprintf(rule->step, sizeof rule->step, "%s", word);
	word = strtok_r(NULL, " ", &save);
	if (word && (strcmp(word, "*") == 0 || (*word >= '0' && *word <= '9'))) {
		if (*word != '*')
			rule->which = script_number(word);
		word = strtok_r(NULL, " ", &save);
	}
	if (word && strcmp(word, "once") == 0) {
		rule->once = true;
		word = strtok_r(NULL, " ", &save);
	}
	if (!word)
		stop_with("the rule at %s has no action", rule->step);
	snprintf(rule->action, sizeof rule->action, "%s", word);
	word = strtok_r(NULL, "", &save);
	snprintf(rule->argument, sizeof rule->argument, "%s", word ? word : "");
}

/* "if PATH LINE": the line counts while PATH is there. The script itself, whose change a hello depends on, stays as it is.
 * "on DEVICE LINE": while that is what this runner sweeps. */
static char *taken_line(const struct script *script, char *line)
{
	const bool on = strncmp(line, "on ", strlen("on ")) == 0;
	char *rest;

	if (!on && strncmp(line, "if ", strlen("if ")) != 0)
		return line;
	line += strlen("if ");
	rest = strchr(line, ' ');
	if (!rest)
		stop_with("an if or on of the script has no line: %s", line);
	*rest++ = '\0';
	return (on ? strcmp(line, script->on) == 0 : access(line, F_OK) == 0) ? rest : NULL;
}

static void read_line(struct script *script, char *line)
{
	char *value = strchr(line, ' ');

	if (!value)
		stop_with("a line of the script has no value: %s", line);
	*value++ = '\0';
	if (strcmp(line, "at") == 0) {
		read_rule(script, value);
	} else if (strcmp(line, "identity") == 0) {
		snprintf(script->identity, sizeof script->identity, "%s", value);
	} else if (strcmp(line, "device") == 0) {
		snprintf(script->device_identity, sizeof script->device_identity, "%s", value);
	} else if (strcmp(line, "kind") == 0) {
		snprintf(script->kind, sizeof script->kind, "%s", value);
	} else if (strcmp(line, "log") == 0) {
		snprintf(script->log, sizeof script->log, "%s", value);
	} else if (strcmp(line, "depends") == 0) {
		snprintf(script->depends, sizeof script->depends, "%s", value);
	} else if (strcmp(line, "devices") == 0) {
		script->devices = (uint32_t)script_number(value);
	} else if (strcmp(line, "space") == 0) {
		script->space = (uint32_t)script_number(value);
	} else if (strcmp(line, "same") == 0) {
		script->same = (uint32_t)script_number(value);
	} else if (strcmp(line, "best") == 0) {
		script->best = script_number(value);
	} else if (strcmp(line, "wrong") == 0) {
		script->wrong = script_number(value);
	} else if (strcmp(line, "load") == 0) {
		script->load = script_number(value);
	} else if (strcmp(line, "disturbed") == 0) {
		script->disturbed = script_number(value);
	} else if (strcmp(line, "problems") == 0) {
		script->problems = strcmp(value, "named") == 0;
	} else if (strcmp(line, "pace_us") == 0) {
		script->pace_ns = (uint64_t)script_number(value) * 1000;
	} else if (strcmp(line, "time") == 0) {
		char *ps = strchr(value, ' ');
		long index;

		if (!ps)
			stop_with("a time of the script has no picoseconds");
		*ps++ = '\0';
		index = script_number(value);
		if (index < 0 || index >= FT_SPACE_MAX)
			stop_with("the script gives a time for member %ld", index);
		script->time_ps[index] = (uint64_t)script_number(ps);
	} else {
		stop_with("the script says %s, which is unknown", line);
	}
}

void script_read(struct script *script)
{
	char line[512];
	FILE *file;

	memset((char *)script + offsetof(struct script, identity), 0,
	        sizeof *script - offsetof(struct script, identity));
	script->devices = 1;
	snprintf(script->identity, sizeof script->identity,
	        "compiler=made-up-1 runtime=none timing=formula-1");
	snprintf(script->device_identity, sizeof script->device_identity, "arch=made-up units=4");
	snprintf(script->kind, sizeof script->kind, "cpu");
	script->best = -1;
	script->wrong = -1;
	script->load = -1;
	if (!script->path)
		return;
	file = fopen(script->path, "re");
	if (!file)
		stop_with("cannot read %s: %s", script->path, strerror(errno));
	while (fgets(line, sizeof line, file)) {
		char *taken;

		script->line++;
		line[strcspn(line, "\n")] = '\0';
		taken = *line && *line != '#' ? taken_line(script, line) : NULL;
		if (taken)
			read_line(script, taken);
	}
	fclose(file);
}

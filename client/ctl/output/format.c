#include "client/ctl/output/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct unit {
	double scale;
	const char *name;
};

/* The largest unit that leaves at least 1, so that figures have three digits that mean something. */
static struct unit time_unit(uint64_t ps)
{
	static const struct unit units[] = {{1e12, "s"}, {1e9, "ms"}, {1e6, "µs"}, {1e3, "ns"}, {1, "ps"}};
	size_t i = 0;

	while (i + 1 < sizeof units / sizeof *units && (double)ps < units[i].scale)
		i++;
	return units[i];
}

static int decimals(double value)
{
	if (value >= 1000)
		return 0;
	return value >= 10 ? 1 : 2;
}

const char *format_time(uint64_t ps, char text[FORMAT_SIZE])
{
	struct unit unit = time_unit(ps);
	double value = (double)ps / unit.scale;

	text[0] = '\0';
	if (ps != 0)
		snprintf(text, FORMAT_SIZE, "%.*f %s", decimals(value), value, unit.name);
	return text;
}

const char *format_spread(uint64_t ps, uint64_t ci_ps, char text[FORMAT_SIZE])
{
	struct unit unit = time_unit(ps);
	double value = (double)ps / unit.scale;
	double spread = (double)ci_ps / unit.scale;

	text[0] = '\0';
	if (ps != 0)
		snprintf(text, FORMAT_SIZE, "%.*f %s ±%.*f", decimals(value), value, unit.name,
		        spread < 0.1 ? 2 : decimals(value), spread);
	return text;
}

const char *format_bytes(uint64_t bytes, char text[FORMAT_SIZE])
{
	static const struct unit units[] = {{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}};

	for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
		if ((double)bytes >= units[i].scale) {
			double value = (double)bytes / units[i].scale;

			snprintf(text, FORMAT_SIZE, "%.*f %s", value >= 100 ? 0 : 1, value, units[i].name);
			return text;
		}
	}
	snprintf(text, FORMAT_SIZE, "%" PRIu64 " B", bytes);
	return text;
}

const char *format_gain(
        uint64_t time, uint64_t default_time, uint64_t least_ppm, int unsettled, char text[FORMAT_SIZE])
{
	char least[24] = "";

	text[0] = '\0';
	if (least_ppm != 0)
		snprintf(least, sizeof least, " (≥%.2f)", (double)least_ppm / 1e6);
	if (time != 0 && default_time != 0)
		snprintf(text, FORMAT_SIZE, "%.2f×%s%s", (double)default_time / (double)time, least,
		        unsettled ? " unsettled" : "");
	return text;
}

const char *format_duration(uint64_t ns, char text[FORMAT_SIZE])
{
	uint64_t s = ns / 1000000000;

	if (s < 60)
		snprintf(text, FORMAT_SIZE, "%.1f s", (double)ns / 1e9);
	else if (s < 3600)
		snprintf(text, FORMAT_SIZE, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
	else if (s < 86400)
		snprintf(text, FORMAT_SIZE, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s / 60 % 60);
	else
		snprintf(text, FORMAT_SIZE, "%" PRIu64 " d %" PRIu64 " h", s / 86400, s / 3600 % 24);
	return text;
}

const char *format_date(uint64_t at_ns, char text[FORMAT_SIZE])
{
	time_t at = (time_t)(at_ns / 1000000000);
	struct tm parts;

	text[0] = '\0';
	if (at_ns != 0 && gmtime_r(&at, &parts) != NULL)
		strftime(text, FORMAT_SIZE, "%Y-%m-%dT%H:%M:%SZ", &parts);
	return text;
}

/* Adds to a text of FORMAT_LONG_SIZE, cutting it to fit. */
static void append_number(char *text, const char *name, int64_t number)
{
	size_t length = strlen(text);

	snprintf(text + length, FORMAT_LONG_SIZE - length, "%s%s=%" PRId64, length > 0 ? " " : "", name,
	        number);
}

static void append_text(char *text, const char *name, const char *value)
{
	size_t length = strlen(text);

	snprintf(text + length, FORMAT_LONG_SIZE - length, "%s%s=%s", length > 0 ? " " : "", name, value);
}

const char *format_knob(const struct flytune_knob *knob, char text[FORMAT_SIZE])
{
	if (knob->word != NULL)
		return knob->word;
	snprintf(text, FORMAT_SIZE, "%" PRId64, knob->value);
	return text;
}

const char *format_config(const struct flytune_knob *knob, uint32_t count, char text[FORMAT_LONG_SIZE])
{
	text[0] = '\0';
	for (uint32_t i = 0; i < count; i++) {
		char number[FORMAT_SIZE];

		append_text(text, knob[i].name, format_knob(&knob[i], number));
	}
	return text;
}

const char *format_problem(const flytune_problem *problem, char text[FORMAT_LONG_SIZE])
{
	struct flytune_field field;

	text[0] = '\0';
	for (size_t i = 0; flytune_problem_field(problem, i, &field); i++) {
		if (field.text != NULL)
			append_text(text, field.name, field.text);
		else
			append_number(text, field.name, field.number);
	}
	return text;
}

const char *format_values(const struct flytune_value *value, uint32_t count, char text[FORMAT_LONG_SIZE])
{
	text[0] = '\0';
	for (uint32_t i = 0; i < count; i++) {
		if (value[i].text[0] != '\0')
			append_text(text, value[i].name, value[i].text);
		else
			append_number(text, value[i].name, value[i].number);
	}
	return text;
}

/* Numbers with units, times and configs as people read them. Each fills in a text and returns it. */
#ifndef FLYTUNE_CTL_FORMAT_H
#define FLYTUNE_CTL_FORMAT_H

#include <flytune/admin.h>

enum { FORMAT_SIZE = 64, FORMAT_LONG_SIZE = 2048 };

/* "81.2 µs"; "" for 0. */
const char *format_time(uint64_t ps, char text[FORMAT_SIZE]);
/* "81.2 µs ±0.4": the interval in the unit of the time. */
const char *format_spread(uint64_t ps, uint64_t ci_ps, char text[FORMAT_SIZE]);
/* "1.24× (≥1.20)", and "unsettled" behind it: a time and the default's in one unit, as far as is known; "" for 0. */
const char *format_gain(
        uint64_t time, uint64_t default_time, uint64_t least_ppm, int unsettled, char text[FORMAT_SIZE]);
/* "1.2 GB", in powers of 1,000. */
const char *format_bytes(uint64_t bytes, char text[FORMAT_SIZE]);
/* "3 min 20 s" */
const char *format_duration(uint64_t ns, char text[FORMAT_SIZE]);
/* "2025-06-01T12:00:00Z"; "" for 0. */
const char *format_date(uint64_t at_ns, char text[FORMAT_SIZE]);
/* "BLOCK_THREADS=256 waves_per_eu=0" */
/* A knob's value: a word as it is. */
const char *format_knob(const struct flytune_knob *knob, char text[FORMAT_SIZE]);
const char *format_config(const struct flytune_knob *knob, uint32_t count, char text[FORMAT_LONG_SIZE]);
/* "m=64 n=4096 dtype=bf16" */
const char *format_problem(const flytune_problem *problem, char text[FORMAT_LONG_SIZE]);
const char *format_values(const struct flytune_value *value, uint32_t count, char text[FORMAT_LONG_SIZE]);

#endif

#include "client/ctl/output/table.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/output/output.h"

void table_init(struct table *table, const char *const *head, size_t columns)
{
	*table = (struct table){.head = head, .columns = columns};
}

static void add(struct table *table, const char *format, va_list arguments)
        __attribute__((format(printf, 2, 0)));

static void add(struct table *table, const char *format, va_list arguments)
{
	if (table->cells == table->capacity) {
		size_t capacity = table->capacity == 0 ? 64 : table->capacity * 2;
		char(*cell)[TABLE_CELL_SIZE] = realloc(table->cell, capacity * sizeof *cell);

		if (cell == NULL) {
			table->failed = true;
			return;
		}
		table->cell = cell;
		table->capacity = capacity;
	}
	vsnprintf(table->cell[table->cells++], TABLE_CELL_SIZE, format, arguments);
}

void table_add(struct table *table, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	add(table, format, arguments);
	va_end(arguments);
}

void table_count(struct table *table, uint64_t number)
{
	if (number == 0)
		table_add(table, "%s", "");
	else
		table_add(table, "%" PRIu64, number);
}

void table_fact(struct table *table, const char *name, const char *format, ...)
{
	va_list arguments;

	table_add(table, "%s", name);
	va_start(arguments, format);
	add(table, format, arguments);
	va_end(arguments);
	if (!table->failed && table->cell[table->cells - 1][0] == '\0')
		table->cells -= 2;
}

/* Characters of UTF-8 text. */
static int width_of(const char *text)
{
	int width = 0;

	for (; *text != '\0'; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

static void print_cell(const char *text, int width, bool right, bool last)
{
	int gap = width - width_of(text);

	if (right)
		printf("%*s%s", gap, "", text);
	else
		printf("%s%*s", text, last ? 0 : gap, "");
	fputs(last ? "\n" : "  ", stdout);
}

static bool is_right(const struct table *table, size_t column)
{
	return table->head != NULL && table->head[column][0] == '>';
}

static const char *title(const struct table *table, size_t column)
{
	return table->head[column] + is_right(table, column);
}

static void print(const struct table *table, int *width)
{
	size_t last = 0;
	bool bold = table->head != NULL && isatty(STDOUT_FILENO);

	for (size_t i = 0; i < table->cells; i++) {
		int cell = width_of(table->cell[i]);

		if (cell > width[i % table->columns])
			width[i % table->columns] = cell;
	}
	for (size_t i = 0; i < table->columns; i++) {
		if (width[i] == 0)
			continue;
		last = i;
		if (table->head != NULL && width_of(title(table, i)) > width[i])
			width[i] = width_of(title(table, i));
	}
	if (bold)
		fputs("\033[1m", stdout);
	for (size_t i = 0; table->head != NULL && i < table->columns; i++) {
		if (width[i] > 0)
			print_cell(title(table, i), width[i], is_right(table, i), i == last);
	}
	if (bold)
		fputs("\033[0m", stdout);
	for (size_t i = 0; i < table->cells; i++) {
		size_t column = i % table->columns;

		if (width[column] > 0)
			print_cell(table->cell[i], width[column], is_right(table, column), column == last);
	}
}

void table_print(struct table *table)
{
	int *width = calloc(table->columns, sizeof *width);

	if (width != NULL && !table->failed)
		print(table, width);
	else
		output_short();
	free(width);
	free(table->cell);
	*table = (struct table){0};
}

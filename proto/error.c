#include "proto/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Bytes of the character that begins here; 0 if it is none that may be shown. */
static size_t shown_length(const unsigned char *at)
{
	size_t length = at[0] < 0x80 ? 1
	        : at[0] < 0xc2       ? 0
	        : at[0] < 0xe0       ? 2
	        : at[0] < 0xf0       ? 3
	        : at[0] < 0xf5       ? 4
	                             : 0;
	if (length == 1)
		return at[0] >= 0x20 && at[0] != 0x7f ? 1 : 0;
	for (size_t i = 1; i < length; i++) {
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	}
	/* The second set of controls, which some terminals obey, too; then longer forms than need be, halves of pairs,
	 * and what is past the end. */
	bool bad = (at[0] == 0xc2 && at[1] < 0xa0) || (at[0] == 0xe0 && at[1] < 0xa0) ||
	        (at[0] == 0xed && at[1] > 0x9f) || (at[0] == 0xf0 && at[1] < 0x90) ||
	        (at[0] == 0xf4 && at[1] > 0x8f);
	return bad ? 0 : length;
}

void ft_make_plain(char *text)
{
	for (unsigned char *at = (unsigned char *)text; *at != '\0';) {
		size_t length = shown_length(at);
		if (length == 0)
			*at = '?';
		at += length > 0 ? length : 1;
	}
}

static void copy_shown(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from);
	ft_make_plain(to);
}

static void start(struct ft_error *error, const char *code)
{
	memset(error, 0, sizeof(*error));
	snprintf(error->code, sizeof(error->code), "%s", code);
}

int(ft_fail)(struct ft_error *error, const char *code, const char *format, ...)
{
	if (error == NULL)
		return -1;
	/* Through a buffer of its own, since the arguments may be parts of the error that is replaced. */
	char message[sizeof(error->message)];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	ft_make_plain(message);
	start(error, code);
	memcpy(error->message, message, sizeof(message));
	return -1;
}

int(ft_fail_field)(
        struct ft_error *error, const char *code, const char *field, const char *value, const char *bound)
{
	if (error == NULL)
		return -1;
	struct ft_error made;
	start(&made, code);
	copy_shown(made.field, sizeof(made.field), field);
	copy_shown(made.value, sizeof(made.value), value != NULL ? value : "");
	copy_shown(made.bound, sizeof(made.bound), bound != NULL ? bound : "");
	const char *shown = made.value[0] != '\0' ? made.value : "empty";
	if (bound != NULL)
		snprintf(made.message, sizeof(made.message), "%s is %s; it must be %s", made.field, shown,
		        bound);
	else
		snprintf(made.message, sizeof(made.message), "%s is %s", made.field, shown);
	ft_make_plain(made.message);
	*error = made;
	return -1;
}

int(ft_fail_errno)(struct ft_error *error, int number, const char *format, ...)
{
	if (error == NULL)
		return -1;
	char message[sizeof(error->message)];
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	if (length >= 0 && (size_t)length < sizeof(message)) {
		char text[128];
		const char *reason = strerror_r(number, text, sizeof(text));
		snprintf(message + length, sizeof(message) - (size_t)length, ": %s", reason);
	}
	ft_make_plain(message);
	start(error, FT_E_SYSTEM);
	memcpy(error->message, message, sizeof(message));
	return -1;
}

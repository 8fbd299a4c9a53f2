#include "proto/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What a peer sent ends up in logs and on terminals: no line breaks or escapes in it. */
static void copy_shown(char *to, size_t size, const char *from)
{
	size_t length = 0;
	for (; from[length] != '\0' && length + 1 < size; length++) {
		unsigned char byte = (unsigned char)from[length];
		bool shown = byte >= 0x20 && byte != 0x7f;
		to[length] = (char)(shown ? byte : '?');
	}
	to[length] = '\0';
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
	snprintf(made.bound, sizeof(made.bound), "%s", bound != NULL ? bound : "");
	const char *shown = made.value[0] != '\0' ? made.value : "empty";
	if (bound != NULL)
		snprintf(made.message, sizeof(made.message), "%s is %s; it must be %s", made.field, shown,
		        bound);
	else
		snprintf(made.message, sizeof(made.message), "%s is %s", made.field, shown);
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
	start(error, FT_E_SYSTEM);
	memcpy(error->message, message, sizeof(message));
	return -1;
}

#include "client/lib/outcome.h"

#include <stdio.h>
#include <string.h>

static const struct {
	enum flytune_result code;
	const char *word;
} codes[] = {
        {FLYTUNE_OK, "ok"},
        {FLYTUNE_E_BAD_VALUE, FT_E_BAD_VALUE},
        {FLYTUNE_E_BAD_REQUEST, FT_E_BAD_REQUEST},
        {FLYTUNE_E_UNKNOWN_KERNEL, FT_E_UNKNOWN_KERNEL},
        {FLYTUNE_E_UNKNOWN_FIELD, FT_E_UNKNOWN_FIELD},
        {FLYTUNE_E_UNKNOWN_KNOB, FT_E_UNKNOWN_KNOB},
        {FLYTUNE_E_UNKNOWN_DEVICE, FT_E_UNKNOWN_DEVICE},
        {FLYTUNE_E_UNKNOWN_JOB, FT_E_UNKNOWN_JOB},
        {FLYTUNE_E_UNKNOWN_METHOD, FT_E_UNKNOWN_METHOD},
        {FLYTUNE_E_PROTOCOL, FT_E_PROTOCOL},
        {FLYTUNE_E_BAD_FRAME, FT_E_BAD_FRAME},
        {FLYTUNE_E_BUSY, FT_E_BUSY},
        {FLYTUNE_E_DENIED, FT_E_DENIED},
        {FLYTUNE_E_UNAVAILABLE, FT_E_UNAVAILABLE},
        {FLYTUNE_E_AWAY, FT_E_AWAY},
        {FLYTUNE_E_TIMEOUT, FT_E_TIMEOUT},
        {FLYTUNE_E_GENERATION, FT_E_GENERATION},
        {FLYTUNE_E_CANCELLED, FT_E_CANCELLED},
        {FLYTUNE_E_RUNNER, FT_E_RUNNER},
        {FLYTUNE_E_STORE, FT_E_STORE},
        {FLYTUNE_E_SYSTEM, FT_E_SYSTEM},
        {FLYTUNE_E_MEMORY, FT_E_MEMORY},
        {FLYTUNE_E_OTHER, "other"},
};

enum { CODE_COUNT = sizeof codes / sizeof *codes };

const char *flytune_result_word(enum flytune_result code)
{
	for (size_t i = 0; i < CODE_COUNT; i++) {
		if (codes[i].code == code)
			return codes[i].word;
	}
	return "other";
}

enum flytune_result outcome_code(const char *word)
{
	for (size_t i = 1; i < CODE_COUNT; i++) {
		if (strcmp(codes[i].word, word) == 0)
			return codes[i].code;
	}
	return FLYTUNE_E_OTHER;
}

enum flytune_result outcome(struct flytune_error *out, const struct ft_error *error)
{
	enum flytune_result code = outcome_code(error->code);

	if (out != NULL) {
		out->code = code;
		snprintf(out->word, sizeof out->word, "%s", error->code);
		snprintf(out->message, sizeof out->message, "%s", error->message);
		snprintf(out->field, sizeof out->field, "%s", error->field);
		snprintf(out->value, sizeof out->value, "%s", error->value);
		snprintf(out->bound, sizeof out->bound, "%s", error->bound);
	}
	return code;
}

enum flytune_result outcome_null(struct flytune_error *out, const char *argument)
{
	struct ft_error error;

	ft_fail_field(&error, FT_E_BAD_VALUE, argument, "NULL", "given");
	return outcome(out, &error);
}

enum flytune_result outcome_unsized(struct flytune_error *out, const char *structure)
{
	struct ft_error error;

	ft_fail(&error, FT_E_BAD_REQUEST, "the size of struct %s is not set: call %s_init first", structure,
	        structure);
	return outcome(out, &error);
}

bool outcome_is_callers(const struct ft_error *error)
{
	switch (outcome_code(error->code)) {
	case FLYTUNE_E_BAD_VALUE:
	case FLYTUNE_E_BAD_REQUEST:
	case FLYTUNE_E_UNKNOWN_KERNEL:
	case FLYTUNE_E_UNKNOWN_FIELD:
	case FLYTUNE_E_UNKNOWN_KNOB:
	case FLYTUNE_E_UNKNOWN_DEVICE:
	case FLYTUNE_E_UNKNOWN_JOB:
	case FLYTUNE_E_GENERATION:
	/* A default in silence would hide for ever that a group is missing. */
	case FLYTUNE_E_DENIED:
		return true;
	default:
		return false;
	}
}

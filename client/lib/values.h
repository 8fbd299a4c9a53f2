/* A problem's fields as the public structures show them. */
#ifndef FLYTUNE_CLIENT_VALUES_H
#define FLYTUNE_CLIENT_VALUES_H

#include <string.h>

#include <flytune/client.h>
#include "proto/value.h"

/* Returns their number. `shown` is zeroed before. */
static inline uint32_t values_show(
        const struct ft_problem *problem, struct flytune_value shown[FLYTUNE_FIELDS_MAX])
{
	for (uint32_t i = 0; i < problem->count; i++) {
		const struct ft_field *field = &problem->field[i];

		memcpy(shown[i].name, field->name, sizeof shown[i].name);
		if (field->is_text)
			memcpy(shown[i].text, field->text, sizeof shown[i].text);
		else
			shown[i].number = field->number;
	}
	return problem->count;
}

#endif

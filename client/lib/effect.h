/* What each knob did for a problem, worked out from the trials of its sweep. */
#ifndef FLYTUNE_CLIENT_EFFECT_H
#define FLYTUNE_CLIENT_EFFECT_H

#include <stdbool.h>
#include <stddef.h>

#include <flytune/admin.h>

/* Fills in all but the name and `changes_bits`, which are the schema's. */
void effect_measure(struct flytune_effect *effect, const struct flytune_trial *trial, size_t count);

#endif

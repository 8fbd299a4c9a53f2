/* Which problems a kernel is tried with: bounds of each field and what lies between them. */
#include "client/ctl/commands/kernel.h"

#include <stdlib.h>
#include <string.h>

enum { VALUES_MAX = 32, DRAWS_MAX = 20 * SPREAD_MAX };

/* Those within a field's bounds are tried: odd and even, around powers of two, small and large. */
static const int64_t usual[] = {0, 1, 2, 3, 7, 16, 33, 64, 100, 128, 255, 256, 257, 1000, 1024, 1025, 2048,
        4096, 5000, 8192, 65536, 1048576};
enum { USUAL = sizeof(usual) / sizeof(usual[0]) };

/* What a field may be; the first of one that has a default is that: it is left out. */
struct axis {
	const struct ft_schema_field_def *def;
	uint32_t count;
	int64_t number[VALUES_MAX];
};

static void add(struct axis *axis, int64_t number)
{
	for (uint32_t i = 0; i < axis->count; i++) {
		if (axis->number[i] == number)
			return;
	}
	axis->number[axis->count++] = number;
}

static bool may_be_left_out(const struct ft_schema_field_def *def)
{
	return def->has_default || def->same_as[0] != '\0';
}

/* Of words the number is which of the choices. */
static void axis_make(struct axis *axis, const struct ft_schema_field_def *def)
{
	axis->def = def;
	axis->count = 0;
	if (def->is_text) {
		while (axis->count < FT_CHOICES_MAX && def->choice[axis->count][0] != '\0') {
			axis->number[axis->count] = axis->count;
			axis->count++;
		}
		return;
	}
	add(axis, def->min);
	for (int i = 0; i < USUAL; i++) {
		if (usual[i] >= def->min && usual[i] <= def->max)
			add(axis, usual[i]);
	}
	add(axis, def->max);
}

static uint32_t axis_values(const struct axis *axis)
{
	return axis->count + may_be_left_out(axis->def);
}

/* `pick` is below axis_values(). */
static void set_field(const struct axis *axis, uint32_t pick, struct ft_problem *problem)
{
	const struct ft_schema_field_def *def = axis->def;

	if (pick == axis->count)
		return;
	if (def->is_text)
		(void)ft_problem_set_text(problem, def->name, def->choice[axis->number[pick]], NULL);
	else
		(void)ft_problem_set_number(problem, def->name, axis->number[pick], NULL);
}

/* SplitMix64: the same numbers each time. */
static uint64_t draw(uint64_t *state)
{
	uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* The n-th problem that is looked at: of all, where they are few; else the least and the greatest, and then any. */
static void choose(const struct axis *axis, uint32_t axes, uint64_t product, uint32_t n, uint64_t *state,
        struct ft_problem *problem)
{
	uint64_t rest = n;

	problem->count = 0;
	for (uint32_t i = 0; i < axes; i++) {
		const uint32_t values = axis_values(&axis[i]);
		uint32_t pick;

		if (product <= SPREAD_MAX) {
			pick = (uint32_t)(rest % values);
			rest /= values;
		} else if (n < 2) {
			pick = n == 0 ? 0 : axis[i].count - 1;
		} else {
			pick = (uint32_t)(draw(state) % values);
		}
		set_field(&axis[i], pick, problem);
	}
}

static bool is_known(const struct spread *spread, const struct ft_problem *problem)
{
	for (uint32_t i = 0; i < spread->count; i++) {
		if (ft_problem_equal(&spread->problem[i], problem))
			return true;
	}
	return false;
}

int spread_make(struct spread *spread, const struct ft_folder *folder, struct ft_problem *culprit,
        struct ft_error *error)
{
	const struct ft_kernel *kernel = ft_folder_kernel(folder);
	const struct ft_schema *schema = kernel->schema(kernel, "cpu");
	struct axis *axis = calloc(schema->field_count, sizeof(*axis));
	uint64_t state = 0, product = 1;
	int taken = 0;

	*spread = (struct spread){.problem = calloc(SPREAD_MAX, sizeof(*spread->problem))};
	culprit->count = 0;
	if (axis == NULL || spread->problem == NULL) {
		free(axis);
		return ft_fail(error, FT_E_MEMORY, "no memory for problems");
	}
	for (uint32_t i = 0; i < schema->field_count; i++) {
		axis_make(&axis[i], &schema->field[i]);
		if (product <= SPREAD_MAX)
			product *= axis_values(&axis[i]);
	}
	for (uint32_t n = 0; n < (product <= SPREAD_MAX ? product : DRAWS_MAX) && taken >= 0; n++) {
		struct ft_problem *whole = &spread->problem[spread->count];

		if (spread->count == SPREAD_MAX)
			break;
		choose(axis, schema->field_count, product, n, &state, culprit);
		/* What is left out may come to what no caller may say: `same_as` a field with wider bounds. */
		if (ft_schema_complete(schema, culprit, whole, NULL) < 0 || is_known(spread, whole))
			continue;
		taken = ft_folder_takes(folder, whole, error);
		if (taken < 0)
			ft_problem_copy(culprit, whole);
		spread->count += taken > 0;
		spread->refused += taken == 0;
	}
	free(axis);
	return taken < 0 ? -1 : 0;
}

void spread_free(struct spread *spread)
{
	free(spread->problem);
}

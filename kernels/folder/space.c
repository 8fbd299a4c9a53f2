/* Which configs a problem has on a device, in which order, and which is the default.
 *
 * The values of the knobs are walked through depth first, and a rule is applied as soon as all of its knobs have theirs, so that
 * what it leaves out is left out at once. Knobs that rules hold tightest come first. */
#include "kernels/folder/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct member_key {
	int64_t order[ORDER_MAX];
	uint8_t index[FT_KNOBS_MAX]; /* of the value of each knob that there is */
	uint8_t pruned;              /* by the rule before this one; 0: by none */
};

struct walk {
	const struct ft_folder *folder;
	enum kind kind;
	struct values values;
	uint32_t depth;                           /* knobs that there are */
	uint32_t knob[FT_KNOBS_MAX];              /* in the order in which they get their values */
	uint32_t applied_at[FT_FOLDER_RULES_MAX]; /* when so many have; UINT32_MAX: not at all */
	uint8_t index[FT_KNOBS_MAX];
	uint64_t work;
	struct ft_folder_count *count;
	bool keeps; /* the members; else they are only counted */
	uint32_t room;
	struct member_key *member;
	struct ft_error *error;
};

static uint64_t knobs_in(const struct ft_folder *folder, const struct formula *formula)
{
	return ft_expression_slots(formula->expression) >> folder->knob_slot;
}

/* Knobs of the rule that has the fewest to come, again and again, then those that no rule names. */
static void plan(struct walk *walk)
{
	const struct ft_folder *folder = walk->folder;
	uint64_t known = 0;

	for (uint32_t i = 0; i < folder->rule_count; i++)
		walk->applied_at[i] = UINT32_MAX;
	for (;;) {
		const uint32_t none = folder->rule_count;
		uint32_t best = none;
		int fewest = FT_KNOBS_MAX + 1;
		uint64_t next = ((uint64_t)1 << folder->knob_count) - 1;

		for (uint32_t i = 0; i < folder->rule_count; i++) {
			const struct rule *rule = &folder->rule[i];
			const int open = __builtin_popcountll(knobs_in(folder, &rule->formula) & ~known);

			if (walk->applied_at[i] != UINT32_MAX || rule->prunes || open >= fewest ||
			        !formula_applies(folder, &rule->formula, walk->kind))
				continue;
			best = i;
			fewest = open;
		}
		if (best != none)
			next = knobs_in(folder, &folder->rule[best].formula);
		for (uint32_t i = 0; i < folder->knob_count; i++) {
			if (((next & ~known) >> i & 1) != 0 && (folder->knob[i].kinds >> walk->kind & 1) != 0)
				walk->knob[walk->depth++] = i;
		}
		known |= next;
		if (best == none)
			return;
		walk->applied_at[best] = walk->depth;
	}
}

static int spend(struct walk *walk)
{
	if (walk->work-- > 0)
		return 0;
	walk->work = 0;
	return ft_fail(walk->error, FT_E_BAD_VALUE,
	        "kernel.json: space: there is too much to try; rules of fewer knobs, or fewer values, make "
	        "it less");
}

static uint64_t saturated(uint64_t a, uint64_t b, bool is_sum)
{
	uint64_t result;
	bool over = is_sum ? __builtin_add_overflow(a, b, &result) : __builtin_mul_overflow(a, b, &result);

	return over ? UINT64_MAX : result;
}

/* 1 if the rules that can be applied now hold, 0 if one does not. */
static int rules_hold(struct walk *walk, uint32_t depth)
{
	const struct ft_folder *folder = walk->folder;

	for (uint32_t i = 0; i < folder->rule_count; i++) {
		uint64_t configs = 1;
		bool holds = true;

		if (walk->applied_at[i] != depth)
			continue;
		if (spend(walk) < 0 ||
		        formula_holds(&folder->rule[i].formula, &walk->values, &holds, walk->error) < 0)
			return -1;
		if (holds)
			continue;
		for (uint32_t at = depth; at < walk->depth; at++)
			configs = saturated(configs, folder->knob[walk->knob[at]].def.count, false);
		walk->count->excluded[i] = saturated(walk->count->excluded[i], configs, true);
		return 0;
	}
	return 1;
}

static int make_room(struct walk *walk)
{
	const uint32_t room = walk->room == 0 ? FT_SPACE_MAX : 2 * walk->room;
	struct member_key *more;

	if (walk->count->members < walk->room)
		return 0;
	if (walk->room == FT_MEMBERS_MAX)
		return ft_fail(walk->error, FT_E_BAD_VALUE,
		        "kernel.json: space: the space of this problem has more than %d configs",
		        FT_MEMBERS_MAX);
	more = realloc(walk->member, room * sizeof(*more));
	if (more == NULL)
		return ft_fail(walk->error, FT_E_MEMORY, "no memory for a space");
	walk->member = more;
	walk->room = room;
	return 0;
}

static int found(struct walk *walk)
{
	const struct ft_folder *folder = walk->folder;
	struct member_key key = {.pruned = 0};
	uint32_t orders = 0;
	bool holds;

	if (spend(walk) < 0)
		return -1;
	for (uint32_t i = 0; i < folder->rule_count && key.pruned == 0; i++) {
		const struct formula *formula = &folder->rule[i].formula;

		if (!folder->rule[i].prunes || !formula_applies(folder, formula, walk->kind))
			continue;
		if (spend(walk) < 0 || formula_holds(formula, &walk->values, &holds, walk->error) < 0)
			return -1;
		if (holds)
			continue;
		key.pruned = (uint8_t)(i + 1);
		walk->count->excluded[i]++;
	}
	if (walk->keeps) {
		if (make_room(walk) < 0)
			return -1;
		for (uint32_t i = 0; i < folder->order_count; i++) {
			if (formula_applies(folder, &folder->order[i], walk->kind) &&
			        formula_number(&folder->order[i], &walk->values, INT64_MIN, INT64_MAX,
			                &key.order[orders++], walk->error) < 0)
				return -1;
		}
		memcpy(key.index, walk->index, sizeof(key.index));
		walk->member[walk->count->members] = key;
	}
	walk->count->members++;
	return 0;
}

static int walk_from(
        struct walk *walk, uint32_t depth) // NOLINT(misc-no-recursion): as deep as there are knobs
{
	if (depth == walk->depth)
		return found(walk);
	const uint32_t at = walk->knob[depth];
	const struct ft_knob_def *def = &walk->folder->knob[at].def;
	union ft_expression_value *value = &walk->values.slot[walk->folder->knob_slot + at];

	for (uint32_t i = 0; i < def->count; i++) {
		int held;

		walk->index[at] = (uint8_t)i;
		if (def->is_word)
			value->text = def->word[i];
		else
			value->number = def->value[i];
		held = rules_hold(walk, depth + 1);
		if (held < 0 || (held > 0 && walk_from(walk, depth + 1) < 0))
			return -1;
	}
	return 0;
}

static int walk_all(struct walk *walk, const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits)
{
	const uint64_t most = walk->work;
	int held;

	walk->folder = folder;
	walk->kind = kind_named(traits->kind);
	values_of_problem(folder, problem, &walk->values);
	values_of_traits(folder, traits, &walk->values);
	memset(walk->count, 0, sizeof(*walk->count));
	walk->count->rule_count = folder->rule_count;
	for (uint32_t i = 0; i < folder->rule_count; i++) {
		walk->count->rule[i] = folder->rule[i].text;
		walk->count->why[i] = folder->rule[i].why;
		walk->count->prunes[i] = folder->rule[i].prunes;
	}
	plan(walk);
	held = rules_hold(walk, 0);
	if (held > 0)
		held = walk_from(walk, 0);
	walk->count->work = most - walk->work;
	return held < 0 ? -1 : 0;
}

int ft_folder_count(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, uint64_t work, struct ft_folder_count *count, struct ft_error *error)
{
	struct walk walk = {
	        .work = work < FT_FOLDER_WORK ? work : FT_FOLDER_WORK, .count = count, .error = error};

	return walk_all(&walk, folder, problem, traits);
}

/* ---- the space ---- */

static int compare(const void *one, const void *other)
{
	const struct member_key *a = one, *b = other;

	for (int i = 0; i < ORDER_MAX; i++) {
		if (a->order[i] != b->order[i])
			return a->order[i] < b->order[i] ? -1 : 1;
	}
	return memcmp(a->index, b->index, sizeof(a->index));
}

static void put(const struct ft_folder *folder, enum kind kind, const struct member_key *key,
        struct ft_config *config)
{
	const struct knob *knob;

	memset(config, 0, sizeof(*config));
	for (uint32_t at = 0; (knob = config_knob(folder, kind, &at)) != NULL;)
		config_set_knob(&config->knob[config->count++], &knob->def, key->index[at - 1]);
}

/* The rule that leaves out the most. */
static int refuse_empty(
        const struct ft_folder *folder, const struct ft_folder_count *count, struct ft_error *error)
{
	uint32_t most = 0;

	for (uint32_t i = 1; i < count->rule_count; i++) {
		if (!count->prunes[i] && (count->prunes[most] || count->excluded[i] > count->excluded[most]))
			most = i;
	}
	(void)ft_fail(error, FT_E_BAD_VALUE, "this problem has no config on this device: %s (%.100s)",
	        count->why[most], count->rule[most]);
	return place_blame(folder->rule[most].formula.place, error);
}

struct members {
	struct member_key *member; /* in order; to be freed, also after a failure */
	uint32_t count, default_index;
	struct ft_config usual;
};

static int members_find(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, struct members *members, struct ft_error *error)
{
	const enum kind kind = kind_named(traits->kind);
	struct ft_folder_count count;
	struct walk walk = {.work = FT_FOLDER_WORK, .count = &count, .error = error, .keeps = true};
	struct ft_config config;
	int result = walk_all(&walk, folder, problem, traits);

	members->member = walk.member;
	if (result < 0)
		return -1;
	if (count.members == 0)
		return refuse_empty(folder, &count, error);
	if (ft_folder_default(folder, problem, traits, &members->usual, error) < 0)
		return -1;
	if (config_check_rules(folder, kind, &walk.values, &members->usual, error) < 0)
		return place_blame("default", error);
	members->count = (uint32_t)count.members;
	qsort(members->member, members->count, sizeof(*members->member), compare);
	for (members->default_index = 0; members->default_index < members->count - 1;
	        members->default_index++) {
		put(folder, kind, &members->member[members->default_index], &config);
		if (ft_config_equal(&config, &members->usual))
			break;
	}
	members->member[members->default_index].pruned = 0;
	return 0;
}

/* Those that can win come first, in their order. */
static void leave_pruned(struct members *members)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < members->count; i++) {
		if (members->member[i].pruned > 0)
			continue;
		if (i == members->default_index)
			members->default_index = left;
		members->member[left++] = members->member[i];
	}
	members->count = left;
}

int space_make(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, struct ft_space *space, struct ft_error *error)
{
	const enum kind kind = kind_named(traits->kind);
	struct members members = {.member = NULL};
	int result = members_find(folder, problem, traits, &members, error);

	space->count = space->unlisted = 0;
	space->default_index = FT_SPACE_MAX;
	if (result < 0)
		goto out;
	if (members.count > FT_SPACE_MAX) {
		leave_pruned(&members);
		space->unlisted = members.count;
		space->count = 1;
		space->default_index = 0;
		space->config[0] = members.usual;
		space->pruned[0][0] = '\0';
	} else {
		space->count = members.count;
		space->default_index = members.default_index;
	}
	for (uint32_t i = 0; i < space->count && space->unlisted == 0; i++) {
		const uint8_t pruned = members.member[i].pruned;

		put(folder, kind, &members.member[i], &space->config[i]);
		ft_text_copy(space->pruned[i], sizeof(space->pruned[i]),
		        pruned > 0 ? folder->rule[pruned - 1].why : "");
	}
out:
	free(members.member);
	return result;
}

int space_members(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, struct ft_members *rows, struct ft_error *error)
{
	const enum kind kind = kind_named(traits->kind);
	struct members members = {.member = NULL};
	int result = members_find(folder, problem, traits, &members, error);

	*rows = (struct ft_members){.knobs = folder->schema[kind].knob_count};
	if (result < 0)
		goto out;
	leave_pruned(&members);
	rows->row = calloc((size_t)members.count + 1, rows->knobs + 1);
	if (rows->row == NULL) {
		result = ft_fail(error, FT_E_MEMORY, "no memory for a space");
		goto out;
	}
	rows->count = members.count;
	rows->default_index = members.default_index;
	for (uint32_t i = 0; i < members.count; i++) {
		uint8_t *row = rows->row + (size_t)i * rows->knobs;

		for (uint32_t at = 0; config_knob(folder, kind, &at) != NULL;)
			*row++ = members.member[i].index[at - 1];
	}
out:
	free(members.member);
	return result;
}

bool space_tries(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, const struct ft_config *config)
{
	const enum kind kind = kind_named(traits->kind);
	struct ft_config usual;
	struct values values;
	bool holds = true;

	if (ft_folder_default(folder, problem, traits, &usual, NULL) == 0 && ft_config_equal(config, &usual))
		return true;
	values_of_problem(folder, problem, &values);
	values_of_traits(folder, traits, &values);
	if (config_check_rules(folder, kind, &values, config, NULL) < 0)
		return false;
	for (uint32_t i = 0; i < folder->rule_count && holds; i++) {
		const struct formula *formula = &folder->rule[i].formula;

		if (folder->rule[i].prunes && formula_applies(folder, formula, kind) &&
		        formula_holds(formula, &values, &holds, NULL) < 0)
			return false;
	}
	return holds;
}

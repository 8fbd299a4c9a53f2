#include "daemon/answers/staleness.h"

bool winner_serves(const struct target *target, struct store_winner *winner)
{
	return winner_is_current(target->kernel, winner) && target_takes(target, &winner->config, NULL);
}

bool winner_is_settled(const struct target *target, struct store_winner *winner)
{
	return winner_serves(target, winner) && winner->rule_revision == FT_RULE_REVISION &&
	        winner->space_hash == target_space_hash(target);
}

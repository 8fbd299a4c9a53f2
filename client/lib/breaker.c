#include "client/lib/breaker.h"

#include "client/lib/clock.h"

void breaker_init(struct breaker *breaker, uint64_t seed)
{
	*breaker = (struct breaker){.random = seed | 1};
}

/* xorshift: all that is asked of it is that two processes differ. */
static uint64_t next_random(struct breaker *breaker)
{
	breaker->random ^= breaker->random << 13;
	breaker->random ^= breaker->random >> 7;
	breaker->random ^= breaker->random << 17;
	return breaker->random;
}

static void open_for(struct breaker *breaker, uint64_t now, uint64_t pause_ms, const struct ft_error *error)
{
	breaker->failures++;
	breaker->open = true;
	breaker->until = now + pause_ms * CLOCK_MS + next_random(breaker) % (pause_ms * CLOCK_MS / 2);
	breaker->error = *error;
}

void breaker_fail(struct breaker *breaker, uint64_t now, const struct ft_error *error)
{
	uint64_t pause = BREAKER_FIRST_MS;

	if (breaker_paused(breaker, now))
		return;
	for (unsigned i = 0; i < breaker->failures && pause < BREAKER_CAP_MS; i++)
		pause *= 2;
	/* The jitter stays even at the cap. */
	if (pause > (uint64_t)BREAKER_CAP_MS * 2 / 3)
		pause = (uint64_t)BREAKER_CAP_MS * 2 / 3;
	open_for(breaker, now, pause, error);
}

void breaker_absent(struct breaker *breaker, uint64_t now, const struct ft_error *error)
{
	if (!breaker_paused(breaker, now))
		open_for(breaker, now, BREAKER_ABSENT_MS, error);
}

void breaker_connected(struct breaker *breaker)
{
	breaker->open = false;
}

void breaker_succeed(struct breaker *breaker)
{
	breaker->open = false;
	breaker->failures = 0;
}

bool breaker_paused(const struct breaker *breaker, uint64_t now)
{
	return breaker->open && now < breaker->until;
}

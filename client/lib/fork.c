#include "client/lib/fork.h"

#include <unistd.h>

/* The handlers of pthread_atfork take no argument, so the list of clients has to be global: it is the one
 * piece of the library's state that is. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static flytune_client *first;

/* Holding every lock across the fork, the child finds each client's state whole. No lock is ever held for
 * long. */
static void before_fork(void)
{
	pthread_mutex_lock(&list_lock);
	for (flytune_client *client = first; client != NULL; client = client->next)
		pthread_mutex_lock(&client->lock);
}

static void after_fork_in_parent(void)
{
	for (flytune_client *client = first; client != NULL; client = client->next)
		pthread_mutex_unlock(&client->lock);
	pthread_mutex_unlock(&list_lock);
}

static void after_fork_in_child(void)
{
	for (flytune_client *client = first; client != NULL; client = client->next) {
		client_forked(client);
		pthread_mutex_unlock(&client->lock);
	}
	pthread_mutex_unlock(&list_lock);
}

/* Should it fail, client_enter still sees that the process is another. */
static void install(void)
{
	(void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void fork_watch(flytune_client *client)
{
	pthread_once(&once, install);
	pthread_mutex_lock(&list_lock);
	client->previous = NULL;
	client->next = first;
	if (first != NULL)
		first->previous = client;
	first = client;
	pthread_mutex_unlock(&list_lock);
}

void fork_forget(flytune_client *client)
{
	pthread_mutex_lock(&list_lock);
	if (client->previous != NULL)
		client->previous->next = client->next;
	else
		first = client->next;
	if (client->next != NULL)
		client->next->previous = client->previous;
	pthread_mutex_unlock(&list_lock);
}

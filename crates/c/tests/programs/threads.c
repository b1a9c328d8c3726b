/* Threads that share sockets, and open and close their own. */
#include "check.h"
#include <pthread.h>

#define TYPE 7500
enum { THREADS = 8, ROUNDS = 500 };

static const struct tipc_addr service = { .type = TYPE, .instance = 1 };
static int server;

/* Each thread is a client; all serve requests on the same server socket in turn. */
static void *talk(void *number)
{
	struct tipc_addr client;
	char buffer[40];
	int i, sd = -1;

	for (i = 0; i < ROUNDS; i++) {
		if (i % 50 == 0) {
			if (sd >= 0)
				CHECK(tipc_close(sd) == 0);
			sd = open_socket(SOCK_RDM);
		}
		CHECK(tipc_sendto(sd, &number, sizeof(number), &service) == sizeof(number));
		/* Any of the threads may get and answer this request. */
		CHECK(tipc_recvfrom(server, buffer, sizeof(buffer), &client, NULL, NULL) == sizeof(number));
		CHECK(tipc_sendto(server, buffer, sizeof(number), &client) == sizeof(number));
		CHECK(tipc_recv(sd, buffer, sizeof(buffer), false) == sizeof(number));
		CHECK(memcmp(buffer, &number, sizeof(number)) == 0);
	}
	/* Error texts are per thread. */
	FAILS(tipc_bind(sd, 7, 1, 1, 0), EACCES);
	CHECK(tipc_close(sd) == 0);
	return NULL;
}

/* The first calls of the process, made at the same time, start one node. */
static void *first(void *node)
{
	*(uint32_t *)node = tipc_own_node();
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	uint32_t nodes[THREADS];
	int i;

	for (i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, first, &nodes[i]) == 0);
	for (i = 0; i < THREADS; i++) {
		CHECK(pthread_join(threads[i], NULL) == 0);
		CHECK(nodes[i] != 0 && nodes[i] == nodes[0]);
	}
	server = open_socket(SOCK_RDM);
	CHECK(tipc_bind(server, TYPE, 1, 1, 0) == 0);
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, talk, (void *)(uintptr_t)(i + 1)) == 0);
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(tipc_close(server) == 0);
	printf("ok\n");
	return 0;
}

/* A communication group: a coordinator, and workers that it knows by their membership. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utipc.h>

#define JOBS 4300
#define COORDINATOR 1
#define WORKER 2

static void die(const char *what)
{
	fprintf(stderr, "group: cannot %s: %s\n", what, utipc_strerror());
	exit(1);
}

static int join(uint32_t instance, bool events)
{
	struct tipc_addr member = { .type = JOBS, .instance = instance };
	int sd = tipc_socket(SOCK_RDM);

	if (sd < 0 || tipc_join(sd, &member, events, false) < 0)
		die("join");
	return sd;
}

static void sent(int result)
{
	if (result < 0)
		die("send");
}

/* Receives the next event: the member that it is about has joined, or has left. */
static void event(int sd)
{
	struct tipc_addr member;
	char unused[1];
	int left;

	if (tipc_recvfrom(sd, unused, sizeof(unused), NULL, &member, &left) != 0)
		die("receive");
	printf("coordinator: instance %u has %s\n", member.instance, left ? "left" : "joined");
}

/* Receives the next message; stores its sender. */
static const char *message(int sd, struct tipc_addr *member)
{
	static char text[100];
	int size = tipc_recvfrom(sd, text, sizeof(text) - 1, NULL, member, NULL);

	if (size < 0)
		die("receive");
	text[size] = 0;
	return text;
}

int main(void)
{
	struct tipc_addr worker = { .type = JOBS, .instance = WORKER }, boss, member;
	const char *text;
	int coordinator, workers[2], i, j;

	coordinator = join(COORDINATOR, true);
	for (i = 0; i < 2; i++)
		workers[i] = join(WORKER, false);
	for (i = 0; i < 2; i++)
		event(coordinator);

	/* To all; then to one of the workers each, in turn. */
	sent(tipc_send(coordinator, "start", 5));
	sent(tipc_sendto(coordinator, "a task", 6, &worker));
	sent(tipc_sendto(coordinator, "a task", 6, &worker));
	for (i = 0; i < 2; i++)
		for (j = 0; j < 2; j++)
			printf("worker %d: %s\n", i + 1, message(workers[i], &member));

	/* To one member. */
	if (tipc_sockaddr(coordinator, &boss) < 0)
		die("get the coordinator's address");
	sent(tipc_sendto(workers[0], "done", 4, &boss));
	text = message(coordinator, &member);
	printf("coordinator: %s from instance %u\n", text, member.instance);
	tipc_close(workers[0]);
	event(coordinator);
	tipc_close(workers[1]);
	tipc_close(coordinator);
	return 0;
}

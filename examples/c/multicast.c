/* One message to all sockets bound in a range of instances. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utipc.h>

#define WEATHER 1000

static const uint32_t instances[] = { 10, 20, 30 };

static void die(const char *what)
{
	fprintf(stderr, "multicast: cannot %s: %s\n", what, utipc_strerror());
	exit(1);
}

static int station(uint32_t lower, uint32_t upper)
{
	int sd = tipc_socket(SOCK_RDM);

	if (sd < 0 || tipc_bind(sd, WEATHER, lower, upper, 0) < 0)
		die("open a station");
	return sd;
}

static void forecast(int sd, const char *text, uint32_t upper)
{
	struct tipc_addr range = { .type = WEATHER, .instance = 0, .node = upper };

	if (tipc_mcast(sd, text, strlen(text), &range) < 0)
		die("send");
}

/* Receives a message, and the range that it was sent to. */
static const char *next(int sd, struct tipc_addr *range)
{
	static char text[100];
	int size = tipc_recvfrom(sd, text, sizeof(text) - 1, NULL, range, NULL);

	if (size < 0)
		die("receive");
	text[size] = 0;
	return text;
}

int main(void)
{
	struct tipc_addr range = { .type = 0 };
	const char *text;
	int stations[3], archive, sender, i, expected;

	for (i = 0; i < 3; i++)
		stations[i] = station(instances[i], instances[i]);
	/* A socket may have many bindings, also of whole ranges. */
	archive = station(0, ~0u);

	sender = tipc_socket(SOCK_RDM);
	if (sender < 0)
		die("open a socket");
	forecast(sender, "rain in the south", 25);
	forecast(sender, "sun everywhere", 99);

	for (i = 0; i < 3; i++)
		for (expected = instances[i] <= 25 ? 2 : 1; expected > 0; expected--)
			printf("station %u: %s\n", instances[i], next(stations[i], NULL));
	for (i = 0; i < 2; i++) {
		text = next(archive, &range);
		printf("archive: %s (sent to {%u,%u,%u})\n", text, range.type, range.instance, range.node);
	}
	for (i = 0; i < 3; i++)
		tipc_close(stations[i]);
	tipc_close(archive);
	tipc_close(sender);
	return 0;
}

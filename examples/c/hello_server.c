/*
 * A server without a host or port number: it binds to a service address, and clients find it wherever it runs.
 *
 * Start it in one terminal and hello_client in another, in any order, with no arguments.
 */
#include <stdio.h>
#include <stdlib.h>
#include <utipc.h>

#define HELLO_TYPE 18888
#define HELLO_INSTANCE 17

static void die(const char *what)
{
	fprintf(stderr, "hello_server: cannot %s: %s\n", what, utipc_strerror());
	exit(1);
}

/* The reply to another node travels over a link: stay until that node has left, so that the reply arrives. */
static void wait_until_down(uint32_t node)
{
	uint32_t neighbour;
	bool up;
	int sd = tipc_neigh_subscr(0);

	if (sd < 0 || utipc_sock_timeout(sd, 10000, -1) < 0)
		die("subscribe to nodes");
	while (tipc_neigh_evt(sd, &neighbour, &up) == 0)
		if (neighbour == node && !up)
			break;
	tipc_close(sd);
}

int main(void)
{
	struct tipc_addr client;
	char request[100];
	int size;
	int sd = tipc_socket(SOCK_RDM);

	if (sd < 0 || tipc_bind(sd, HELLO_TYPE, HELLO_INSTANCE, HELLO_INSTANCE, 0) < 0)
		die("serve");
	printf("server: bound to {%d,%d} on node %x\n", HELLO_TYPE, HELLO_INSTANCE, tipc_own_node());
	fflush(stdout);

	size = tipc_recvfrom(sd, request, sizeof(request), &client, NULL, NULL);
	if (size < 0)
		die("receive");
	printf("server: \"%.*s\" from %x:%u\n", size, request, client.node, client.instance);
	if (tipc_sendto(sd, "Uh ?", 4, &client) < 0)
		die("reply");

	if (client.node != tipc_own_node())
		wait_until_down(client.node);
	printf("server: done\n");
	tipc_close(sd);
	return 0;
}

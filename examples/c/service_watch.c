/*
 * Watches the bindings of a service, as seen by this node or another.
 *
 * Usage: service_watch [NODE], with a node address in hexadecimal.
 */
#include <stdio.h>
#include <stdlib.h>
#include <utipc.h>

#define WATCHED 2222
#define OWN 5

static void die(const char *what)
{
	fprintf(stderr, "service_watch: cannot %s: %s\n", what, utipc_strerror());
	exit(1);
}

/* A program that has just started does not know its peers yet. */
static void wait_for_node(uint32_t wanted)
{
	uint32_t node;
	bool up;
	int sd = tipc_neigh_subscr(0);

	if (sd < 0)
		die("subscribe to nodes");
	utipc_sock_timeout(sd, 10000, -1);
	while (tipc_neigh_evt(sd, &node, &up) == 0)
		if (up && node == wanted)
			break;
	tipc_close(sd);
}

int main(int argc, char **argv)
{
	struct tipc_addr service, port;
	uint32_t own = tipc_own_node();
	uint32_t server = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 16) : own;
	bool up = true, expired = false;
	int topology, socket;

	if (own == 0)
		die("start the node");
	if (server != own)
		wait_for_node(server);
	/* The topology server of another node is used like that of this node. */
	topology = tipc_topsrv_conn(server);
	if (topology < 0)
		die("connect to the topology server");
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("watching {%d,0,99} as node %x sees it\n", WATCHED, server);
	if (tipc_srv_subscr(topology, WATCHED, 0, 99, true, 10000) < 0)
		die("subscribe");

	socket = tipc_socket(SOCK_RDM);
	if (socket < 0 || tipc_bind(socket, WATCHED, OWN, OWN, 0) < 0)
		die("bind");
	while (up) {
		if (tipc_srv_evt(topology, &service, &port, &up, &expired) < 0)
			die("wait for an event");
		if (expired)
			break;
		printf("service {%u,%u} is %s at %x:%u\n", service.type, service.instance, up ? "up" : "down", port.node,
		       port.instance);
		/* Closing the socket withdraws its bindings. */
		if (up && socket >= 0) {
			tipc_close(socket);
			socket = -1;
		}
	}
	tipc_close(topology);
	printf("done\n");
	return 0;
}

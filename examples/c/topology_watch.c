/*
 * Prints events of nodes and links in the cluster.
 *
 * Usage: topology_watch [SECONDS]; start or stop other examples while it runs.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <utipc.h>

static void die(const char *what)
{
	fprintf(stderr, "topology_watch: cannot %s: %s\n", what, utipc_strerror());
	exit(1);
}

static long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
	long long end = argc > 1 ? now_ms() + 1000LL * atoi(argv[1]) : -1, left = -1;
	uint32_t node;
	bool up;
	struct pollfd set[2];

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("the view of node %x\n", tipc_own_node());
	set[0].fd = tipc_neigh_subscr(0);
	set[1].fd = tipc_link_subscr(0);
	if (set[0].fd < 0 || set[1].fd < 0)
		die("subscribe");
	set[0].events = set[1].events = POLLIN;

	for (;;) {
		if (end >= 0 && (left = end - now_ms()) <= 0)
			break;
		poll(set, 2, (int)left);
		if (set[0].revents) {
			if (tipc_neigh_evt(set[0].fd, &node, &up) < 0)
				die("receive a node event");
			printf("node %x is %s\n", node, up ? "up" : "down");
		}
		if (set[1].revents) {
			if (tipc_link_evt(set[1].fd, &node, &up, NULL, NULL) < 0)
				die("receive a link event");
			printf("link to node %x is %s\n", node, up ? "up" : "down");
		}
	}
	tipc_close(set[0].fd);
	tipc_close(set[1].fd);
	return 0;
}

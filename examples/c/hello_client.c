/* A client that knows only a service address. See hello_server.c. */
#include <stdio.h>
#include <stdlib.h>
#include <utipc.h>

#define HELLO_TYPE 18888
#define HELLO_INSTANCE 17

static const struct tipc_addr hello = { .type = HELLO_TYPE, .instance = HELLO_INSTANCE };

static void die(const char *what)
{
	fprintf(stderr, "hello_client: cannot %s: %s\n", what, utipc_strerror());
	exit(1);
}

int main(void)
{
	struct tipc_addr server;
	char reply[100];
	int size;
	int sd = tipc_socket(SOCK_RDM);

	if (sd < 0)
		die("open a socket");
	printf("client: node %x waits for {%u,%u}\n", tipc_own_node(), hello.type, hello.instance);
	fflush(stdout);
	if (!tipc_srv_wait(&hello, 30000))
		die("wait for the server");

	utipc_sock_timeout(sd, 10000, -1);
	if (tipc_sendto(sd, "Hello World!!!", 14, &hello) < 0)
		die("send");
	size = tipc_recvfrom(sd, reply, sizeof(reply), &server, NULL, NULL);
	if (size < 0)
		die("receive");
	printf("client: \"%.*s\" from %x:%u\n", size, reply, server.node, server.instance);
	tipc_close(sd);
	return 0;
}

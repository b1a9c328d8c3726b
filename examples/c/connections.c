/* Three ways to set up a connection. Compile with -pthread. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <utipc.h>

#define ECHO_TYPE 4711
#define ECHO_INSTANCE 1

static const struct tipc_addr echo = { .type = ECHO_TYPE, .instance = ECHO_INSTANCE };

static void die(const char *what)
{
	fprintf(stderr, "connections: cannot %s: %s\n", what, utipc_strerror());
	exit(1);
}

/* Echoes data until the client closes the connection. */
static void *echo_one(void *connection)
{
	int sd = (int)(intptr_t)connection;
	char buffer[1000];
	int size;

	while ((size = tipc_recv(sd, buffer, sizeof(buffer), false)) > 0)
		if (tipc_send(sd, buffer, (size_t)size) != size)
			break;
	tipc_close(sd);
	return NULL;
}

static void *serve(void *listener)
{
	int server = (int)(intptr_t)listener;
	int i, sd;
	pthread_t thread;

	for (i = 0; i < 3; i++) {
		sd = tipc_accept(server, NULL);
		if (sd < 0)
			die("accept");
		if (pthread_create(&thread, NULL, echo_one, (void *)(intptr_t)sd) != 0)
			abort();
		pthread_detach(thread);
	}
	tipc_close(server);
	return NULL;
}

/* Receives the reply as text. A non-blocking socket may need several tries. */
static const char *reply(int sd)
{
	static char buffer[100];
	struct pollfd set = { .fd = sd, .events = POLLIN };
	int size;

	while ((size = tipc_recv(sd, buffer, sizeof(buffer) - 1, false)) < 0 && errno == EAGAIN)
		poll(&set, 1, -1);
	if (size < 0)
		die("receive");
	buffer[size] = 0;
	return buffer;
}

/* Sends a word; returns the reply. */
static const char *talk(int sd, const char *word, size_t size)
{
	if (tipc_send(sd, word, size) < 0)
		die("send");
	return reply(sd);
}

static struct tipc_addr peer(int sd)
{
	struct tipc_addr addr = { 0 };

	if (utipc_peeraddr(sd, &addr) < 0)
		die("get the peer's address");
	return addr;
}

/* 1. As with TCP: connect, wait until the server has accepted, then talk. */
static void by_request(void)
{
	struct tipc_addr server;
	int sd = tipc_socket(SOCK_STREAM);

	if (sd < 0 || tipc_connect(sd, &echo) < 0)
		die("connect");
	server = peer(sd);
	printf("1. by request: connected to %x:%u, answer \"%s\"\n", server.node, server.instance,
	       talk(sd, "first", 5));
	tipc_close(sd);
}

/* 2. By data: the first message is the connection request, which saves a round trip. */
static void by_data(void)
{
	int sd = tipc_socket(SOCK_STREAM);

	if (sd < 0 || tipc_sendto(sd, "second", 6, &echo) < 0)
		die("connect by data");
	printf("2. by data: answer \"%s\"\n", reply(sd));
	tipc_close(sd);
}

/* 3. Without waiting: the request is sent, and a poll loop can do other things until the reply arrives. */
static void without_waiting(void)
{
	struct tipc_addr server;
	struct pollfd set;
	int connected;
	int sd = tipc_socket(SOCK_STREAM | SOCK_NONBLOCK);

	if (sd < 0 || (tipc_connect(sd, &echo) < 0 && errno != EINPROGRESS))
		die("request a connection");
	printf("3. without waiting: something else is done meanwhile\n");
	set.fd = sd;
	set.events = POLLOUT;
	while ((connected = utipc_connected(sd)) == 0)
		poll(&set, 1, -1);
	if (connected < 0)
		die("connect");
	server = peer(sd);
	printf("3. without waiting: connected to %x:%u, answer \"%s\"\n", server.node, server.instance,
	       talk(sd, "third", 5));
	tipc_close(sd);
}

int main(void)
{
	pthread_t thread;
	/* Both ends are in one program for demonstration; they could also be on two hosts. */
	int server = tipc_socket(SOCK_STREAM);

	/* Listen before binding, so that no client is refused. */
	if (server < 0 || tipc_listen(server, 10) < 0 || tipc_bind(server, ECHO_TYPE, ECHO_INSTANCE, ECHO_INSTANCE, 0) < 0)
		die("serve");
	if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)server) != 0)
		abort();
	setvbuf(stdout, NULL, _IOLBF, 0);
	by_request();
	by_data();
	without_waiting();
	pthread_join(thread, NULL);
	return 0;
}

/* Connections: three ways to set one up, messages and bytes, poll and epoll, shutdown and reset. */
#include "check.h"
#include <pthread.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <linux/tipc.h>

#define TYPE 7200

static const struct tipc_addr service = { .type = TYPE, .instance = 1 };

static int listener(int type)
{
	int sd = open_socket(type);

	CHECK(tipc_bind(sd, TYPE, 1, 1, 0) == 0);
	CHECK(tipc_listen(sd, 10) == 0);
	return sd;
}

/* A connection with both ends in this program: the client is non-blocking. */
static void connect_pair(int type, int server, int *client, int *accepted)
{
	struct tipc_addr who, own;

	*client = tipc_socket(type | SOCK_NONBLOCK);
	CHECK(*client >= 0);
	FAILS(tipc_connect(*client, &service), EINPROGRESS);
	CHECK(wait_for(server, POLLIN) == POLLIN);
	*accepted = tipc_accept(server, &who);
	CHECK(*accepted >= 0 && tipc_sockaddr(*client, &own) == 0);
	CHECK(who.type == 0 && who.instance == own.instance && who.node == own.node);
	CHECK(utipc_sock_timeout(*accepted, 60000, 60000) == 0);
	CHECK(wait_for(*client, POLLOUT) & POLLOUT);
	CHECK(utipc_connected(*client) == 1);
	CHECK(utipc_peeraddr(*accepted, &own) == 0 && own.instance == who.instance);
}

static void messages(void)
{
	char buffer[100];
	int client, accepted, server = listener(SOCK_SEQPACKET);

	connect_pair(SOCK_SEQPACKET, server, &client, &accepted);
	FAILS(tipc_recv(client, buffer, sizeof(buffer), false), EAGAIN);
	CHECK(tipc_send(client, "one", 3) == 3 && tipc_send(client, "three", 5) == 5);
	CHECK(tipc_recv(accepted, buffer, sizeof(buffer), false) == 3);
	CHECK(tipc_recv(accepted, buffer, sizeof(buffer), true) == 5 && memcmp(buffer, "three", 5) == 0);
	/* Orderly shutdown. */
	CHECK(utipc_shutdown(accepted) == 0);
	CHECK(wait_for(client, POLLIN) & POLLIN);
	CHECK(tipc_recv(client, buffer, sizeof(buffer), false) == 0);
	FAILS(tipc_send(client, "x", 1), EPIPE);
	CHECK(polled(client) & POLLHUP);
	CHECK(tipc_close(client) == 0 && tipc_close(accepted) == 0 && tipc_close(server) == 0);
}

/* More bytes than any queue holds, written and read in turns. */
static void bytes(void)
{
	enum { SIZE = 8 << 20 };
	static unsigned char out[SIZE], in[SIZE];
	int i, n, sent = 0, received = 0, client, accepted, server = listener(SOCK_STREAM);

	for (i = 0; i < SIZE; i++)
		out[i] = (unsigned char)(i * 31 + i / 1000);
	connect_pair(SOCK_STREAM, server, &client, &accepted);
	CHECK(tipc_sock_non_block(accepted) == accepted);
	while (received < SIZE) {
		if (sent < SIZE) {
			n = tipc_send(client, out + sent, SIZE - sent);
			CHECK(n > 0 || errno == EAGAIN);
			sent += n > 0 ? n : 0;
		}
		CHECK(wait_for(accepted, POLLIN) & POLLIN);
		do {
			n = tipc_recv(accepted, in + received, SIZE - received, false);
			CHECK(n > 0 || errno == EAGAIN);
			received += n > 0 ? n : 0;
		} while (n > 0 && received < SIZE);
	}
	CHECK(memcmp(in, out, SIZE) == 0);
	CHECK(tipc_close(client) == 0);
	CHECK(wait_for(accepted, POLLIN | POLLHUP) & POLLHUP);
	CHECK(tipc_close(accepted) == 0 && tipc_close(server) == 0);
}

static void *accept_one(void *server)
{
	usleep(100000);
	return (void *)(intptr_t)tipc_accept(*(int *)server, NULL);
}

/* The request carries the first bytes; the call waits for the reply, and the next one ignores the address. */
static void implied(void)
{
	char buffer[10];
	int accepted, server = listener(SOCK_STREAM), client = open_socket(SOCK_STREAM);
	pthread_t thread;
	void *result;

	CHECK(pthread_create(&thread, NULL, accept_one, &server) == 0);
	CHECK(tipc_sendto(client, "ab", 2, &service) == 2);
	CHECK(tipc_sendto(client, "cd", 2, &service) == 2);
	CHECK(pthread_join(thread, &result) == 0);
	accepted = (int)(intptr_t)result;
	CHECK(accepted >= 0 && utipc_sock_timeout(accepted, 60000, -1) == 0);
	CHECK(tipc_recv(accepted, buffer, 2, true) == 2 && tipc_recv(accepted, buffer + 2, 2, true) == 2);
	CHECK(memcmp(buffer, "abcd", 4) == 0);
	CHECK(tipc_send(accepted, "answer", 6) == 6);
	CHECK(tipc_recv(client, buffer, 6, true) == 6);
	CHECK(tipc_send(client, "more", 4) == 4 && tipc_recv(accepted, buffer, 4, true) == 4);
	CHECK(tipc_close(client) == 0 && tipc_close(accepted) == 0 && tipc_close(server) == 0);
}

static void refused(void)
{
	struct tipc_addr unbound = { .type = TYPE, .instance = 9 };
	int sd = open_socket(SOCK_STREAM), other = open_socket(SOCK_SEQPACKET);
	char buffer[10];

	FAILS(tipc_connect(sd, &unbound), EHOSTUNREACH);
	FAILS(utipc_connected(sd), ENOTCONN);
	FAILS(tipc_send(sd, "x", 1), ENOTCONN);
	FAILS(tipc_recv(sd, buffer, 1, false), ENOTCONN);
	FAILS(utipc_shutdown(sd), ENOTCONN);
	/* Bound, but not listening. */
	CHECK(tipc_bind(other, TYPE, 9, 9, 0) == 0);
	FAILS(tipc_connect(sd, &unbound), ECONNREFUSED);
	CHECK(tipc_close(sd) == 0);
	/* The refusal may arrive at once. */
	sd = tipc_socket(SOCK_SEQPACKET | SOCK_NONBLOCK);
	CHECK(tipc_connect(sd, &unbound) == -1 && (errno == EINPROGRESS || errno == ECONNREFUSED));
	if (errno == EINPROGRESS) {
		CHECK(wait_for(sd, POLLHUP) & POLLHUP);
		FAILS(utipc_connected(sd), ECONNREFUSED);
	}
	CHECK(tipc_close(sd) == 0 && tipc_close(other) == 0);
}

/* Closing with unread data resets the connection; tipc_recvfrom reports how it ended. */
static void reset(void)
{
	char buffer[10];
	int err = 0, client, accepted, server = listener(SOCK_SEQPACKET);

	connect_pair(SOCK_SEQPACKET, server, &client, &accepted);
	CHECK(tipc_send(accepted, "unread", 6) == 6 && wait_for(client, POLLIN) & POLLIN);
	CHECK(tipc_close(client) == 0);
	CHECK(wait_for(accepted, POLLHUP) & POLLHUP);
	CHECK(tipc_recvfrom(accepted, buffer, sizeof(buffer), NULL, NULL, &err) >= 0 && err != 0);
	CHECK(tipc_close(accepted) == 0 && tipc_close(server) == 0);
}

/* Many connections in one epoll set, edge-triggered. */
static void loop(void)
{
	enum { COUNT = 50 };
	struct epoll_event event, events[COUNT];
	char buffer[10];
	int clients[COUNT], accepted[COUNT], i, n, seen = 0;
	int set = epoll_create1(EPOLL_CLOEXEC), server = listener(SOCK_SEQPACKET);

	for (i = 0; i < COUNT; i++) {
		connect_pair(SOCK_SEQPACKET, server, &clients[i], &accepted[i]);
		CHECK(tipc_sock_non_block(accepted[i]) >= 0);
		event.events = EPOLLIN | EPOLLET;
		event.data.u32 = (uint32_t)i;
		CHECK(epoll_ctl(set, EPOLL_CTL_ADD, accepted[i], &event) == 0);
	}
	for (i = 0; i < COUNT; i++)
		CHECK(tipc_send(clients[i], &i, sizeof(i)) == sizeof(i));
	while (seen < COUNT) {
		n = epoll_wait(set, events, COUNT, 60000);
		CHECK(n > 0);
		while (n-- > 0) {
			int at = (int)events[n].data.u32, number = -1;

			CHECK(tipc_recv(accepted[at], &number, sizeof(number), false) == sizeof(number));
			CHECK(number == at);
			FAILS(tipc_recv(accepted[at], buffer, sizeof(buffer), false), EAGAIN);
			seen++;
		}
	}
	CHECK(epoll_wait(set, events, COUNT, 0) == 0);
	for (i = 0; i < COUNT; i++)
		CHECK(tipc_close(clients[i]) == 0 && tipc_close(accepted[i]) == 0);
	CHECK(tipc_close(server) == 0 && close(set) == 0);
}

int main(void)
{
	messages();
	bytes();
	implied();
	refused();
	reset();
	loop();
	printf("ok\n");
	return 0;
}

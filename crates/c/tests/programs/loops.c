/* Event loops that look for messages before they sleep: utipc_epoll_wait and utipc_poll. */
#include "check.h"
#include <pthread.h>
#include <sys/epoll.h>

#define TYPE 7300
#define ROUNDS 300

static const struct tipc_addr service = { .type = TYPE, .instance = 1 };

static void watch(int set, int sd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.fd = sd };

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, sd, &event) == 0);
}

/* Echoes until the connection ends. A message that begins with 's' waits until the client sleeps, or may. */
static void *echo(void *arg)
{
	struct epoll_event event;
	char buffer[100];
	int server = *(int *)arg, sd = tipc_accept(server, NULL), set = epoll_create1(0), len;

	CHECK(sd >= 0 && tipc_sock_non_block(sd) == sd);
	watch(set, sd, EPOLLIN);
	for (;;) {
		CHECK(utipc_epoll_wait(set, &event, 1, 60000) == 1 && event.data.fd == sd);
		len = tipc_recv(sd, buffer, sizeof(buffer), false);
		if (len == 0)
			break;
		if (len < 0) {
			CHECK(errno == EAGAIN);
			continue;
		}
		if (buffer[0] == 's')
			usleep(20000);
		CHECK(tipc_send(sd, buffer, len) == len);
	}
	close(set);
	CHECK(tipc_close(sd) == 0);
	return NULL;
}

/* Waits for the number that was sent last; edge: as a program that waits for edges. */
static void by_epoll(int sd, uint32_t events)
{
	struct epoll_event event;
	int set = epoll_create1(0), number, got;

	watch(set, sd, EPOLLIN | events);
	for (number = 0; number < ROUNDS; number++) {
		CHECK(tipc_send(sd, &number, sizeof(number)) == sizeof(number));
		for (got = -1; got < number;) {
			CHECK(utipc_epoll_wait(set, &event, 1, 60000) == 1);
			while (tipc_recv(sd, &got, sizeof(got), false) > 0)
				CHECK(got == number);
			CHECK(errno == EAGAIN);
		}
	}
	close(set);
}

/* Together with a foreign descriptor, which is readable in every tenth round. */
static void by_poll(int sd)
{
	int ends[2], number, got;

	CHECK(pipe(ends) == 0);
	for (number = 0; number < ROUNDS; number++) {
		struct pollfd set[] = { { .fd = ends[0], .events = POLLIN }, { .fd = sd, .events = POLLIN } };
		bool foreign = number % 10 == 0;

		CHECK(!foreign || write(ends[1], "x", 1) == 1);
		CHECK(tipc_send(sd, &number, sizeof(number)) == sizeof(number));
		for (got = -1; got < number || foreign;) {
			char byte;

			CHECK(utipc_poll(set, 2, 60000) > 0);
			if (set[0].revents) {
				CHECK(foreign && read(ends[0], &byte, 1) == 1);
				foreign = false;
			}
			if (set[1].revents && tipc_recv(sd, &got, sizeof(got), false) > 0)
				CHECK(got == number);
		}
	}
	close(ends[0]);
	close(ends[1]);
}

/* The descriptor is right for the functions of the system too, in any order. */
static void mixed(int sd)
{
	struct pollfd set = { .fd = sd, .events = POLLIN };
	char buffer[10];
	int round;

	for (round = 0; round < 20; round++) {
		CHECK(poll(&set, 1, 0) == 0 && utipc_poll(&set, 1, 0) == 0 && utipc_poll(&set, 1, 1) == 0);
		CHECK(tipc_send(sd, "slow", 4) == 4);
		if (round % 2)
			CHECK(poll(&set, 1, 60000) == 1);
		CHECK(utipc_poll(&set, 1, 60000) == 1 && poll(&set, 1, 0) == 1 && set.revents == POLLIN);
		CHECK(tipc_recv(sd, buffer, sizeof(buffer), false) == 4);
	}
	set.fd = -1;
	CHECK(utipc_poll(&set, 1, 1) == 0);
	FAILS(utipc_epoll_wait(-1, NULL, 1, 0), EBADF);
	FAILS(utipc_epoll_wait(-1, NULL, 1, -1), EBADF);
}

int main(void)
{
	int server = open_socket(SOCK_SEQPACKET), sd;
	pthread_t thread;

	CHECK(tipc_bind(server, TYPE, 1, 1, 0) == 0 && tipc_listen(server, 10) == 0);
	CHECK(pthread_create(&thread, NULL, echo, &server) == 0);
	sd = open_socket(SOCK_SEQPACKET);
	CHECK(tipc_connect(sd, &service) == 0 && tipc_sock_non_block(sd) == sd);
	by_epoll(sd, 0);
	by_epoll(sd, EPOLLET);
	by_poll(sd);
	mixed(sd);
	CHECK(utipc_shutdown(sd) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(tipc_close(sd) == 0 && tipc_close(server) == 0);
	puts("ok");
	return 0;
}

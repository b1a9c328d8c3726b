/* Shared by the test programs: checks that report their place and cause, and sockets with timeouts. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utipc.h>

#define CHECK(what)                                                                                                    \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			int error_ = errno;                                                                            \
			fprintf(stderr, "%s:%d: failed: %s (errno %d, %s; last error: %s)\n", __FILE__, __LINE__,      \
				#what, error_, strerror(error_), utipc_strerror());                                    \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

/* The call fails with this errno and sets an error text. */
#define FAILS(call, number)                                                                                            \
	do {                                                                                                           \
		errno = 0;                                                                                             \
		CHECK((call) == -1);                                                                                   \
		CHECK(errno == (number));                                                                              \
		CHECK(utipc_strerror()[0] != 0);                                                                       \
	} while (0)

/* A socket whose calls time out, so that a failing test ends. */
static inline int open_socket(int type)
{
	int sd = tipc_socket(type);

	CHECK(sd >= 0);
	CHECK(utipc_sock_timeout(sd, 60000, 60000) == 0);
	return sd;
}

/* Waits until poll reports one of the events; returns what it reports. */
static inline int wait_for(int sd, short events)
{
	struct pollfd set = { .fd = sd, .events = events };

	CHECK(poll(&set, 1, 60000) == 1);
	return set.revents;
}

/* The events that poll reports now. */
static inline int polled(int sd)
{
	struct pollfd set = { .fd = sd, .events = POLLIN | POLLOUT };

	CHECK(poll(&set, 1, 0) >= 0);
	return set.revents;
}

static inline int is_daemon(int argc, char **argv)
{
	return argc > 1 && strcmp(argv[1], "daemon") == 0;
}

#endif

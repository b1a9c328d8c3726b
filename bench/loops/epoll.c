/*
 * Round trips of 64 bytes with an epoll loop at both ends, for the rows epoll-shim and epoll-c of
 * `utipc bench targets`.
 *
 *   epoll serve FAMILY IDLE CORE                         prints "ready PORT", echoes until its input closes
 *   epoll drive FAMILY IDLE CORE PORT SECONDS MESSAGES   prints "median NANOSECONDS"
 *
 * FAMILY is tcp or tipc; CORE is -1 for any. The client opens IDLE connections and one more, and uses that for
 * SECONDS, or MESSAGES times if that is not 0. With -DLIBUTIPC the family tipc is libutipc's, without the kernel's or
 * the shim's.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/tipc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef LIBUTIPC
#include <utipc.h>
#endif

enum { SIZE = 64, SERVICE = 19618, EVENTS = 64, TIMES = 1 << 22 };

static bool tipc;

static void die(const char *what)
{
	perror(what);
#ifdef LIBUTIPC
	fprintf(stderr, "%s\n", utipc_strerror());
#endif
	exit(1);
}

static int check(int result, const char *what)
{
	if (result < 0)
		die(what);
	return result;
}

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return 1e9 * now.tv_sec + now.tv_nsec;
}

static int wait_for(int set, struct epoll_event *events)
{
#ifdef LIBUTIPC
	if (tipc)
		return check(utipc_epoll_wait(set, events, EVENTS, -1), "wait");
#endif
	return check(epoll_wait(set, events, EVENTS, -1), "wait");
}

static ssize_t receive(int sd, void *data)
{
#ifdef LIBUTIPC
	if (tipc)
		return tipc_recv(sd, data, SIZE, false);
#endif
	return recv(sd, data, SIZE, MSG_DONTWAIT);
}

static void send_all(int sd, const void *data)
{
#ifdef LIBUTIPC
	if (tipc) {
		check(tipc_send(sd, data, SIZE), "send");
		return;
	}
#endif
	check(send(sd, data, SIZE, MSG_NOSIGNAL), "send");
}

static void watch(int set, int sd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = sd };

	check(epoll_ctl(set, EPOLL_CTL_ADD, sd, &event), "epoll_ctl");
}

static void prepare(int sd)
{
	int on = 1;

	if (!tipc)
		check(setsockopt(sd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), "TCP_NODELAY");
#ifdef LIBUTIPC
	else
		check(tipc_sock_non_block(sd), "non_block");
#endif
}

/* The address of the server; *len is its length. */
static struct sockaddr *address(uint32_t port, socklen_t *len)
{
	static struct sockaddr_in in;
	static struct sockaddr_tipc service;

	if (!tipc) {
		in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port) };
		in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		*len = sizeof(in);
		return (struct sockaddr *)&in;
	}
	service = (struct sockaddr_tipc){ .family = AF_TIPC, .addrtype = TIPC_ADDR_NAME, .scope = TIPC_CLUSTER_SCOPE };
	service.addr.name.name.type = SERVICE;
	service.addr.name.name.instance = port;
	*len = sizeof(service);
	return (struct sockaddr *)&service;
}

static int start_listening(uint32_t *port)
{
	struct sockaddr *own;
	socklen_t len;
	int sd;

	*port = tipc ? (uint32_t)getpid() : 0;
#ifdef LIBUTIPC
	if (tipc) {
		sd = check(tipc_socket(SOCK_SEQPACKET), "socket");
		check(tipc_bind(sd, SERVICE, *port, *port, 0), "bind");
		check(tipc_listen(sd, 0), "listen");
		return sd;
	}
#endif
	own = address(*port, &len);
	sd = check(socket(own->sa_family, tipc ? SOCK_SEQPACKET : SOCK_STREAM, 0), "socket");
	check(bind(sd, own, len), "bind");
	check(listen(sd, 4096), "listen");
	if (!tipc) {
		struct sockaddr_in in;

		len = sizeof(in);
		check(getsockname(sd, (struct sockaddr *)&in, &len), "getsockname");
		*port = ntohs(in.sin_port);
	}
	return sd;
}

static int accept_one(int listener)
{
#ifdef LIBUTIPC
	if (tipc)
		return check(tipc_accept(listener, NULL), "accept");
#endif
	return check(accept(listener, NULL, NULL), "accept");
}

static int connect_to(uint32_t port)
{
	struct sockaddr *server;
	socklen_t len;
	int sd;

#ifdef LIBUTIPC
	if (tipc) {
		struct tipc_addr to = { .type = SERVICE, .instance = port };

		sd = check(tipc_socket(SOCK_SEQPACKET), "socket");
		check(tipc_connect(sd, &to), "connect");
		return sd;
	}
#endif
	server = address(port, &len);
	sd = check(socket(server->sa_family, tipc ? SOCK_SEQPACKET : SOCK_STREAM, 0), "socket");
	check(connect(sd, server, len), "connect");
	return sd;
}

static void serve(int set)
{
	struct epoll_event events[EVENTS];
	uint8_t data[SIZE];
	uint32_t port;
	int listener = start_listening(&port);

	watch(set, listener);
	watch(set, STDIN_FILENO);
	printf("ready %u\n", port);
	fflush(stdout);
	for (;;) {
		int count = wait_for(set, events);

		for (int at = 0; at < count; at++) {
			int sd = events[at].data.fd;

			errno = 0;
			if (sd == STDIN_FILENO)
				return;
			if (sd == listener) {
				int new = accept_one(listener);

				prepare(new);
				watch(set, new);
			} else if (receive(sd, data) == SIZE) {
				send_all(sd, data);
			} else if (errno != EAGAIN) {
				epoll_ctl(set, EPOLL_CTL_DEL, sd, NULL);
			}
		}
	}
}

static int ascending(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;

	return (a > b) - (a < b);
}

static void drive(int set, int idle, uint32_t port, double seconds, long messages)
{
	static double times[TIMES];
	struct epoll_event events[EVENTS];
	uint8_t data[SIZE] = { 7 };
	double end, warm;
	long count = 0, false_alarms = 0;
	bool counts = messages > 0;
	int sd = -1;

	for (int at = 0; at <= idle; at++) {
		sd = connect_to(port);
		prepare(sd);
		watch(set, sd);
	}
	warm = now_ns() + 0.2e9 * seconds;
	end = now_ns() + 1e9 * seconds;
	for (;;) {
		double sent = now_ns(), taken;

		send_all(sd, data);
		/* A descriptor may show as readable although there is nothing. */
		for (;;) {
			ssize_t got;

			if (wait_for(set, events) < 1 || events[0].data.fd != sd)
				continue;
			got = receive(sd, data);
			if (got == SIZE)
				break;
			if (got >= 0 || errno != EAGAIN)
				die("receive");
			false_alarms++;
		}
		taken = now_ns() - sent;
		if (!counts && sent >= warm) {
			counts = true;
			count = 0;
		}
		times[count++ & (TIMES - 1)] = taken;
		if (messages > 0 ? count >= messages : sent >= end)
			break;
	}
	count = count < TIMES ? count : TIMES;
	qsort(times, count, sizeof(*times), ascending);
	printf("median %.0f\n", times[count / 2]);
	if (false_alarms > 0)
		fprintf(stderr, "%ld events without a message\n", false_alarms);
}

int main(int argc, char **argv)
{
	struct rlimit files;
	int set = epoll_create1(0);

	if (argc < 5)
		return 2;
	tipc = strcmp(argv[2], "tipc") == 0;
	if (atoi(argv[4]) >= 0) {
		cpu_set_t cores;

		CPU_ZERO(&cores);
		CPU_SET(atoi(argv[4]), &cores);
		sched_setaffinity(0, sizeof(cores), &cores); /* If this is refused, the scheduler chooses the core. */
	}
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	if (argc > 7)
		drive(set, atoi(argv[3]), strtoul(argv[5], NULL, 10), atof(argv[6]), atol(argv[7]));
	else
		serve(set);
	return 0;
}

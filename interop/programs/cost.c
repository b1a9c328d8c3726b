/* The cost of the shim: ping-pong and stream of an ordinary program over TIPC, compared with TCP.
 *
 *     cost [-s BYTES] [-t MILLISECONDS] [-r ROUNDS] [--demand RATIO]
 *
 * Three measurements, with TIPC and TCP in turn, ROUNDS times; prints medians, spread and ratio: `wait`: ping-pong with
 * blocking calls; `busy`: with receives that are retried at once; `stream`: messages in one direction. With --demand,
 * exit code 1 unless busy and stream are RATIO times better than TCP. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <linux/tipc.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static size_t size = 64;
static long milliseconds = 500;
static int rounds = 7;

static void must(int holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "cost: %s: %s\n", what, strerror(errno));
		exit(2);
	}
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A listening socket of either family, and the address to reach it. */
static int listening_socket(int family, struct sockaddr_storage *address, socklen_t *length)
{
	int fd = socket(family, SOCK_STREAM, 0);
	must(fd >= 0, "socket");
	memset(address, 0, sizeof *address);
	if (family == AF_TIPC) {
		struct sockaddr_tipc *a = (struct sockaddr_tipc *)address;
		static uint32_t instance;
		*a = (struct sockaddr_tipc){.family = AF_TIPC, .addrtype = TIPC_SERVICE_ADDR, .scope = TIPC_NODE_SCOPE};
		a->addr.name.name.type = 0x50000000u + (uint32_t)getpid();
		a->addr.name.name.instance = instance++;
		*length = sizeof *a;
		must(bind(fd, (struct sockaddr *)a, sizeof *a) == 0, "bind");
	} else {
		struct sockaddr_in *a = (struct sockaddr_in *)address;
		*a = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		*length = sizeof *a;
		must(bind(fd, (struct sockaddr *)a, sizeof *a) == 0 && getsockname(fd, (struct sockaddr *)a, length) == 0, "bind");
	}
	must(listen(fd, 5) == 0, "listen");
	return fd;
}

static int whole(int fd, char *data, int flags)
{
	for (size_t got = 0; got < size;) {
		ssize_t n = recv(fd, data + got, size - got, flags);
		if (n > 0)
			got += (size_t)n;
		else if (n == 0 || errno != EAGAIN)
			return 0;
	}
	return 1;
}

static void answer(int fd, int flags)
{
	char *data = malloc(size);
	while (whole(fd, data, flags) && send(fd, data, size, MSG_NOSIGNAL) == (ssize_t)size)
		continue;
	free(data);
}

/* Reads messages until the end; returns their number. */
static void count_messages(int fd, int told)
{
	char *data = malloc(size);
	uint64_t count = 0;
	while (whole(fd, data, 0))
		count++;
	must(write(told, &count, sizeof count) == sizeof count, "tell");
	free(data);
}

enum kind { WAIT, BUSY, STREAM };

/* Round trips or messages per second. */
static double measure(int family, enum kind kind)
{
	struct sockaddr_storage address;
	socklen_t length;
	int listening = listening_socket(family, &address, &length), told[2], on = 1;
	must(pipe(told) == 0, "pipe");
	pid_t pid = fork();
	if (pid == 0) {
		int fd = accept(listening, NULL, NULL);
		must(fd >= 0, "accept");
		if (family == AF_INET)
			setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
		if (kind == STREAM)
			count_messages(fd, told[1]);
		else
			answer(fd, kind == BUSY ? MSG_DONTWAIT : 0);
		exit(0);
	}
	int fd = socket(family, SOCK_STREAM, 0);
	must(connect(fd, (struct sockaddr *)&address, length) == 0, "connect");
	if (family == AF_INET)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	char *data = calloc(1, size);
	double began = now(), end = began + (double)milliseconds * 1e-3, result;
	uint64_t done = 0;
	do {
		for (int i = 0; i < 64; i++, done++) {
			must(send(fd, data, size, MSG_NOSIGNAL) == (ssize_t)size, "send");
			if (kind != STREAM)
				must(whole(fd, data, kind == BUSY ? MSG_DONTWAIT : 0), "recv");
		}
	} while (now() < end);
	if (kind == STREAM) {
		/* An orderly end, measured until the last byte has arrived. */
		uint64_t count;
		must(shutdown(fd, family == AF_INET ? SHUT_WR : SHUT_RDWR) == 0, "shutdown");
		must(read(told[0], &count, sizeof count) == sizeof count, "hear");
		if (count != done)
			printf("cost: %llu messages sent, %llu arrived\n", (unsigned long long)done, (unsigned long long)count);
		must(count == done, "count");
	}
	result = (double)done / (now() - began);
	close(fd);
	close(listening);
	close(told[0]);
	close(told[1]);
	waitpid(pid, NULL, 0);
	free(data);
	return result;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"demand", required_argument, NULL, 'd'}, {NULL, 0, NULL, 0}};
	double demand = 0;
	int option, met = 1;
	while ((option = getopt_long(argc, argv, "s:t:r:", options, NULL)) != -1) {
		if (option == 's')
			size = strtoul(optarg, NULL, 10);
		else if (option == 't')
			milliseconds = atol(optarg);
		else if (option == 'r')
			rounds = atoi(optarg);
		else if (option == 'd')
			demand = atof(optarg);
		else
			return 2;
	}
	if (rounds < 1 || rounds > 100 || size == 0)
		return 2;
	static const char *const names[] = {"wait", "busy", "stream"};
	for (enum kind kind = WAIT; kind <= STREAM; kind++) {
		double tipc[100], tcp[100];
		for (int i = 0; i < rounds; i++) {
			tipc[i] = measure(AF_TIPC, kind);
			tcp[i] = measure(AF_INET, kind);
		}
		qsort(tipc, (size_t)rounds, sizeof *tipc, compare);
		qsort(tcp, (size_t)rounds, sizeof *tcp, compare);
		double ratio = tipc[rounds / 2] / tcp[rounds / 2];
		printf("%-6s %zu B: TIPC %.0f/s (%.0f to %.0f), TCP %.0f/s (%.0f to %.0f), %.2f times\n", names[kind], size, tipc[rounds / 2],
		       tipc[0], tipc[rounds - 1], tcp[rounds / 2], tcp[0], tcp[rounds - 1], ratio);
		fflush(stdout);
		if (demand > 0 && kind != WAIT && ratio < demand)
			met = 0;
	}
	if (demand > 0)
		printf("%s: %g times\n", met ? "met" : "MISSED", demand);
	return met ? 0 : 1;
}

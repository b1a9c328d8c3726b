// Both ends of a TCP connection for proxy.py: an echo server, and a client that measures.
//
//   ends serve                       prints its port; echoes what clients send, or discards it after a first byte 'd'
//   ends latency PORT ROUNDS         prints the median round trip of 64 bytes, in microseconds
//   ends throughput PORT MEBIBYTES   prints MiB/s until the server has confirmed the last byte
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SIZE 64
#define BLOCK (64 * 1024)

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void set_nodelay(int fd)
{
	int on = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void send_all(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
		if (n <= 0)
			fail("send");
		data += n;
		len -= n;
	}
}

static void receive_all(int fd, char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = recv(fd, data, len, 0);
		if (n <= 0)
			fail("receive");
		data += n;
		len -= n;
	}
}

// The first byte selects the service, the next eight are the number of bytes to discard.
static void *serve_one(void *argument)
{
	int fd = (int)(intptr_t)argument;
	static __thread char buffer[BLOCK];
	ssize_t n;
	set_nodelay(fd);
	if (recv(fd, buffer, 1, 0) == 1 && buffer[0] == 'd') {
		uint64_t left;
		receive_all(fd, (char *)&left, sizeof left);
		while (left > 0 && (n = recv(fd, buffer, BLOCK, 0)) > 0)
			left -= n;
		send_all(fd, "k", 1);
	} else {
		while ((n = recv(fd, buffer, BLOCK, 0)) > 0)
			send_all(fd, buffer, n);
	}
	close(fd);
	return NULL;
}

static void serve(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&at, len) || listen(listener, 16))
		fail("listen");
	getsockname(listener, (struct sockaddr *)&at, &len);
	printf("%d\n", ntohs(at.sin_port));
	fflush(stdout);
	for (;;) {
		pthread_t thread;
		int fd = accept(listener, NULL, NULL);
		if (fd < 0)
			fail("accept");
		pthread_create(&thread, NULL, serve_one, (void *)(intptr_t)fd);
		pthread_detach(thread);
	}
}

static int connect_to(const char *port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	to.sin_port = htons(atoi(port));
	if (connect(fd, (struct sockaddr *)&to, sizeof to))
		fail("connect");
	set_nodelay(fd);
	return fd;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void latency(int fd, int rounds)
{
	char data[SIZE] = { 0 };
	double *times = calloc(rounds, sizeof *times);
	send_all(fd, "e", 1);
	for (int i = -rounds / 10; i < rounds; i++) {
		double start = now_us();
		send_all(fd, data, SIZE);
		receive_all(fd, data, SIZE);
		if (i >= 0)
			times[i] = now_us() - start;
	}
	qsort(times, rounds, sizeof *times, compare);
	printf("%.2f\n", times[rounds / 2]);
}

static void throughput(int fd, uint64_t mebibytes)
{
	static char block[BLOCK];
	uint64_t total = mebibytes << 20;
	double start = now_us();
	char done;
	send_all(fd, "d", 1);
	send_all(fd, (char *)&total, sizeof total);
	for (uint64_t sent = 0; sent < total; sent += BLOCK)
		send_all(fd, block, BLOCK);
	receive_all(fd, &done, 1);
	printf("%.1f\n", mebibytes / ((now_us() - start) / 1e6));
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "serve"))
		serve();
	else if (argc == 4 && !strcmp(argv[1], "latency"))
		latency(connect_to(argv[2]), atoi(argv[3]));
	else if (argc == 4 && !strcmp(argv[1], "throughput"))
		throughput(connect_to(argv[2]), strtoull(argv[3], NULL, 10));
	else
		return 2;
	return 0;
}

/*
 * The least processor time that large messages between two nodes need: 65,536 bytes again and again by TCP, or by UDP
 * with segmentation and coalescing as utipc uses them, from one network namespace to another. Needs root and `ip`.
 *
 *   cc -O2 -o bulk bulk.c && sudo ./bulk tcp 2 && sudo ./bulk udp 2 1 2
 *
 *   bulk tcp SECONDS
 *   bulk udp SECONDS SENT RECEIVED   copies each byte SENT times before and RECEIVED times after the system calls
 *
 * UDP sends 44 datagrams of 1,472 bytes in a call, each of a header and data from two places; the receiver acknowledges
 * each call, and eight of them may be unacknowledged. The ends run on cores 0 and 1. Prints the processor time of both
 * for 65,536 bytes, which are 45.8 datagrams.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	UNIT = 65536,
	SEGMENT = 1472,
	HEADER = 40,
	SEGMENTS = 44,
	WINDOW = 8,
	BUFFERS = 16,
	PORT = 6200,
};

/* What the ends tell each other. */
struct shared {
	/* The receiver sets -1 in its namespace, the sender 0 when both have addresses, the receiver 1 when it listens. */
	volatile int ready;
	double cpu;
	long bytes;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static long check(long result, const char *what)
{
	if (result < 0)
		die(what);
	return result;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static double cpu(void)
{
	struct rusage used;

	getrusage(RUSAGE_SELF, &used);
	return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void on_core(int core)
{
	cpu_set_t cores;

	CPU_ZERO(&cores);
	CPU_SET(core, &cores);
	check(sched_setaffinity(0, sizeof cores, &cores), "sched_setaffinity");
}

static void *memory(size_t size)
{
	void *bytes = malloc(size);

	if (!bytes)
		die("malloc");
	return memset(bytes, 1, size);
}

/* Copies what was received or is to be sent, each time to another place. */
static const char *copies(const char *from, char *to, size_t size, int times)
{
	static int next;

	for (int i = 0; i < times; i++) {
		char *place = to + (long)(next++ % BUFFERS) * UNIT;

		memcpy(place, from, size);
		from = place;
	}
	return from;
}

static struct sockaddr_in address(const char *host)
{
	struct sockaddr_in it = {.sin_family = AF_INET, .sin_port = htons(PORT)};

	inet_aton(host, &it.sin_addr);
	return it;
}

static void receive(struct shared *shared, bool tcp, int times)
{
	struct sockaddr_in own = address("0.0.0.0"), from;
	int on = 1, buffer = 4 << 20, one = check(socket(AF_INET, tcp ? SOCK_STREAM : SOCK_DGRAM, 0), "socket");
	char *data = memory(UNIT), *places = memory((long)BUFFERS * UNIT);

	check(bind(one, (void *)&own, sizeof own), "bind");
	if (tcp)
		check(listen(one, 1), "listen");
	else
		check(setsockopt(one, IPPROTO_UDP, UDP_GRO, &on, sizeof on), "UDP_GRO");
	setsockopt(one, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer);
	shared->ready = 1;
	if (tcp)
		one = check(accept(one, NULL, NULL), "accept");
	double begin = cpu();

	for (;;) {
		socklen_t size = sizeof from;
		long got = check(recvfrom(one, data, UNIT, 0, tcp ? NULL : (void *)&from, tcp ? NULL : &size), "receive");

		if (got <= 1)
			break;
		copies(data, places, got, times);
		shared->bytes += got;
		if (!tcp)
			check(sendto(one, "", 1, 0, (void *)&from, size), "acknowledge");
	}
	shared->cpu = cpu() - begin;
}

static void send_all(struct shared *shared, bool tcp, double seconds, int times)
{
	struct sockaddr_in to = address("10.253.0.2");
	int on = 1, segment = SEGMENT, out = 0, one = check(socket(AF_INET, tcp ? SOCK_STREAM : SOCK_DGRAM, 0), "socket");
	char *data = memory(UNIT), *places = memory((long)BUFFERS * UNIT), *headers = memory(SEGMENTS * HEADER), ack;
	struct iovec pieces[2 * SEGMENTS];
	struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2 * SEGMENTS};
	long sent = 0;

	check(connect(one, (void *)&to, sizeof to), "connect");
	if (tcp)
		check(setsockopt(one, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
	else
		check(setsockopt(one, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment), "UDP_SEGMENT");
	double begin = now(), used = cpu();

	while (now() - begin < seconds) {
		const char *from = copies(data, places, UNIT, times);

		if (tcp) {
			sent += check(send(one, from, UNIT, 0), "send");
			continue;
		}
		for (int i = 0; i < SEGMENTS; i++) {
			pieces[2 * i] = (struct iovec){headers + i * HEADER, HEADER};
			pieces[2 * i + 1] = (struct iovec){(char *)from + i * (SEGMENT - HEADER), SEGMENT - HEADER};
		}
		sent += check(sendmsg(one, &message, 0), "sendmsg");
		for (out++; out >= WINDOW; out--)
			check(recv(one, &ack, 1, 0), "acknowledgement");
	}
	double took = now() - begin;

	used = cpu() - used;
	if (!tcp) {
		int none = 0;

		setsockopt(one, IPPROTO_UDP, UDP_SEGMENT, &none, sizeof none);
		check(send(one, "", 1, 0), "the end");
	}
	close(one);
	wait(NULL);
	printf("%s: %.1f us sent, %.1f us received for 65,536 bytes; %.1f Gbit/s\n", tcp ? "tcp" : "udp",
	       used * 1e6 * UNIT / sent, shared->cpu * 1e6 * UNIT / shared->bytes, sent * 8 / took / 1e9);
}

int main(int count, char **words)
{
	bool tcp = count == 3 && !strcmp(words[1], "tcp");
	char command[256];

	if (!tcp && (count != 5 || strcmp(words[1], "udp"))) {
		fprintf(stderr, "usage: bulk tcp SECONDS | bulk udp SECONDS SENT RECEIVED\n");
		return 2;
	}
	struct shared *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	check(unshare(CLONE_NEWNET), "a network namespace (needs root)");
	pid_t receiver = check(fork(), "fork");

	if (!receiver) {
		check(unshare(CLONE_NEWNET), "a network namespace");
		shared->ready = -1;
		while (shared->ready == -1)
			usleep(1000);
		on_core(1);
		receive(shared, tcp, tcp ? 0 : atoi(words[4]));
		return 0;
	}
	while (!shared->ready)
		usleep(1000);
	snprintf(command, sizeof command,
		 "ip link add name sender type veth peer name receiver netns %d"
		 " && ip address add 10.253.0.1/24 dev sender && ip link set sender up"
		 " && nsenter -t %d -n sh -c 'ip address add 10.253.0.2/24 dev receiver && ip link set receiver up'",
		 receiver, receiver);
	check(-system(command), "ip");
	shared->ready = 0;
	while (!shared->ready)
		usleep(1000);
	usleep(200000);
	on_core(0);
	send_all(shared, tcp, atof(words[2]), tcp ? 0 : atoi(words[3]));
	return 0;
}

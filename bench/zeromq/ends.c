/* One end of a ZeroMQ measurement, for the rows `zeromq-*` of `utipc bench targets`.
 *
 *   ends rep|pull ENDPOINT COUNT SIZE    binds, prints "ready", serves COUNT messages
 *   ends req|push ENDPOINT COUNT SIZE    connects and sends COUNT messages
 *
 * `req` prints the median of its round trips, `pull` the time for each message of the last nine tenths, both in
 * nanoseconds; `pull` then prints how many messages have come. `push` closes right after its last message. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <time.h>
#include <zmq.h>

/* A pull end gives up after this silence, milliseconds. */
#define SILENCE 5000

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, zmq_strerror(zmq_errno()));
	exit(1);
}

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void rep(void *end, char *buffer, size_t size, long count)
{
	while (count-- > 0) {
		int got = zmq_recv(end, buffer, size, 0);

		if (got < 0 || zmq_send(end, buffer, (size_t)got, 0) < 0)
			die("answer");
	}
}

static void req(void *end, char *buffer, size_t size, long count)
{
	uint64_t *times = calloc((size_t)count, sizeof(*times));
	long i, warm = count / 10;

	for (i = 0; i < count; i++) {
		uint64_t began = now();

		if (zmq_send(end, buffer, size, 0) < 0 || zmq_recv(end, buffer, size, 0) < 0)
			die("ask");
		times[i] = now() - began;
	}
	qsort(times + warm, (size_t)(count - warm), sizeof(*times), ascending);
	printf("median %llu\n", (unsigned long long)times[warm + (count - warm) / 2]);
	free(times);
}

static void pull(void *end, char *buffer, size_t size, long count)
{
	uint64_t began = 0;
	long came = 0, warm = count / 10;

	while (came < count && zmq_recv(end, buffer, size, 0) >= 0)
		if (came++ == warm)
			began = now();
	if (came == count && count - 1 > warm)
		printf("each %f\n", (double)(now() - began) / (double)(count - 1 - warm));
	printf("received %ld\n", came);
}

static void push(void *end, char *buffer, size_t size, long count)
{
	while (count-- > 0)
		if (zmq_send(end, buffer, size, 0) < 0)
			die("send");
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int type, binds;
		void (*run)(void *end, char *buffer, size_t size, long count);
	} roles[] = {
		{ "rep", ZMQ_REP, 1, rep }, { "req", ZMQ_REQ, 0, req },
		{ "pull", ZMQ_PULL, 1, pull }, { "push", ZMQ_PUSH, 0, push },
	};
	size_t i;

	if (argc != 5) {
		fprintf(stderr, "usage: ends rep|req|pull|push ENDPOINT COUNT SIZE\n");
		return 2;
	}
	/* Ends with the benchmark. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (i = 0; i < sizeof(roles) / sizeof(*roles); i++) {
		size_t size = strtoul(argv[4], NULL, 10);
		char *buffer = calloc(1, size + 1);
		int silence = SILENCE;
		void *context, *end;

		if (strcmp(argv[1], roles[i].name))
			continue;
		context = zmq_ctx_new();
		end = zmq_socket(context, roles[i].type);
		if (!end || zmq_setsockopt(end, ZMQ_RCVTIMEO, &silence, sizeof(silence)))
			die("make a socket");
		if ((roles[i].binds ? zmq_bind : zmq_connect)(end, argv[2]))
			die(argv[2]);
		puts("ready");
		fflush(stdout);
		roles[i].run(end, buffer, size, strtol(argv[3], NULL, 10));
		zmq_close(end);
		zmq_ctx_term(context);
		free(buffer);
		return 0;
	}
	fprintf(stderr, "unknown role %s\n", argv[1]);
	return 2;
}

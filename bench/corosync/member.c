/*
 * One member of a closed process group, measured by `cargo xtask cpg --compare`: the same program for Corosync's
 * libcpg.so.4 and for utipc's. It reads commands from its input and prints what it measures; docs/operating/cpg.md
 * has the method, and crates/lab/src/bench/member.rs is its counterpart for the Rust API.
 *
 *   member GROUP MEMBERS          joins, prints "ready" in the view with so many members
 *   rate SIZE MILLISECONDS        sends as fast as possible; each member prints "rate MESSAGES NANOSECONDS"
 *   latency SIZE MESSAGES         one message at a time until its own delivery; prints "latency P50 P99" in ns
 *   load SIZE MICROSECONDS        sends one message in each interval until `stop`
 *   mark                          each member prints "mark MESSAGES HASH": its history since "ready"
 *
 * Each later view is printed as "view MEMBERS NANOSECONDS MESSAGES HASH", with the time of day.
 */
#define _GNU_SOURCE
#include <corosync/cpg.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum kind { WARM_UP = 0, FIRST, COUNTED, LAST, ONE, LOAD, MARK };

struct header {
	uint32_t kind;
	uint32_t pid;
	uint64_t number;
};

#define LARGEST 60000

static cpg_handle_t handle;
static int members;
static int ready;
static uint64_t messages, hash;
static uint64_t counted, first_at;
static volatile uint64_t delivered_one;
static char payload[LARGEST];

static uint64_t now(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fail(const char *what, int error)
{
	printf("failed %s: error %d\n", what, error);
	exit(1);
}

/* FNV-1a over words. */
static void mix(uint64_t word)
{
	hash = (hash ^ word) * 0x100000001b3u;
}

static void deliver(cpg_handle_t h, const struct cpg_name *group, uint32_t nodeid, uint32_t pid, void *data,
		    size_t len)
{
	struct header header;
	(void)h, (void)group, (void)nodeid, (void)pid;
	if (len < sizeof header)
		fail("a short message", (int)len);
	memcpy(&header, data, sizeof header);
	messages++;
	mix(header.pid);
	mix(header.number);
	switch (header.kind) {
	case FIRST:
		first_at = now(CLOCK_MONOTONIC);
		counted = 0;
		break;
	case COUNTED:
		counted++;
		break;
	case LAST:
		counted++;
		printf("rate %llu %llu\n", (unsigned long long)counted,
		       (unsigned long long)(now(CLOCK_MONOTONIC) - first_at));
		break;
	case ONE:
		if (header.pid == (uint32_t)getpid())
			delivered_one = header.number;
		break;
	case MARK:
		printf("mark %llu %016llx\n", (unsigned long long)messages, (unsigned long long)hash);
		break;
	}
}

static void change(cpg_handle_t h, const struct cpg_name *group, const struct cpg_address *all, size_t count,
		   const struct cpg_address *left, size_t left_count, const struct cpg_address *joined,
		   size_t joined_count)
{
	(void)h, (void)group, (void)all, (void)left, (void)left_count, (void)joined, (void)joined_count;
	if (!ready && (int)count == members) {
		ready = 1;
		messages = 0;
		hash = 0xcbf29ce484222325u;
		printf("ready\n");
	} else if (ready) {
		mix(count);
		printf("view %zu %llu %llu %016llx\n", count, (unsigned long long)now(CLOCK_REALTIME),
		       (unsigned long long)messages, (unsigned long long)hash);
	}
}

/* Sends; waits by `wait` while there is no room. */
static void send_one(enum kind kind, uint64_t number, size_t size, void (*wait)(void))
{
	struct header header = { kind, (uint32_t)getpid(), number };
	struct iovec piece = { payload, size };
	cs_error_t error;
	memcpy(payload, &header, sizeof header);
	while ((error = cpg_mcast_joined(handle, CPG_TYPE_AGREED, &piece, 1)) == CS_ERR_TRY_AGAIN)
		wait();
	if (error != CS_OK)
		fail("cpg_mcast_joined", error);
}

static void dispatch(cs_dispatch_flags_t how)
{
	cs_error_t error = cpg_dispatch(handle, how);
	if (error != CS_OK && error != CS_ERR_TRY_AGAIN)
		fail("cpg_dispatch", error);
}

static void dispatch_all(void)
{
	dispatch(CS_DISPATCH_ALL);
}

static void nothing(void)
{
}

static uint64_t next_number = 1;
static size_t job_size;
static uint64_t job_ns, job_interval_ns;
static volatile int stop;

/* Sends on a thread of its own, while the main one takes deliveries. */
static void *rate_thread(void *unused)
{
	uint64_t begin = now(CLOCK_MONOTONIC), time = begin;
	uint64_t start = begin + job_ns / 5, end = begin + job_ns;
	enum kind kind = WARM_UP;
	while (time < end) {
		if (kind == FIRST)
			kind = COUNTED;
		else if (kind == WARM_UP && time >= start)
			kind = FIRST;
		send_one(kind, next_number++, job_size, nothing);
		time = now(CLOCK_MONOTONIC);
	}
	send_one(LAST, next_number++, job_size, nothing);
	return unused;
}

static void *load_thread(void *unused)
{
	while (!stop) {
		send_one(LOAD, next_number++, job_size, nothing);
		struct timespec pause = { 0, (long)job_interval_ns };
		nanosleep(&pause, NULL);
	}
	return unused;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static void latency(size_t size, size_t count)
{
	size_t warm_up = count / 10;
	uint64_t *took = calloc(count + warm_up, sizeof *took);
	for (size_t i = 0; i < count + warm_up; i++) {
		uint64_t number = next_number++, begin = now(CLOCK_MONOTONIC);
		send_one(ONE, number, size, dispatch_all);
		while (delivered_one != number)
			dispatch(CS_DISPATCH_ONE);
		took[i] = now(CLOCK_MONOTONIC) - begin;
	}
	qsort(took + warm_up, count, sizeof *took, compare);
	printf("latency %llu %llu\n", (unsigned long long)took[warm_up + count / 2],
	       (unsigned long long)took[warm_up + count * 99 / 100]);
	free(took);
}

static pthread_t sender;
static int sending;

/* Waits for the thread that sends. */
static void join(void)
{
	if (sending)
		pthread_join(sender, NULL);
	sending = 0;
}

static void start(void *(*run)(void *))
{
	int error = pthread_create(&sender, NULL, run, NULL);
	if (error)
		fail("pthread_create", error);
	sending = 1;
}

static void command(const char *line)
{
	unsigned long size, number;
	stop = strncmp(line, "stop", 4) == 0;
	join();
	if (stop)
		return;
	if (sscanf(line, "rate %lu %lu", &size, &number) == 2 && size <= LARGEST) {
		job_size = size;
		job_ns = number * 1000000u;
		start(rate_thread);
	} else if (sscanf(line, "latency %lu %lu", &size, &number) == 2 && size <= LARGEST) {
		latency(size, number);
	} else if (sscanf(line, "load %lu %lu", &size, &number) == 2 && size <= LARGEST) {
		job_size = size;
		job_interval_ns = number * 1000u;
		start(load_thread);
	} else if (strncmp(line, "mark", 4) == 0) {
		send_one(MARK, next_number++, sizeof(struct header), dispatch_all);
	} else {
		fail("an unknown command", 0);
	}
}

int main(int argc, char **argv)
{
	cpg_callbacks_t callbacks = { .cpg_deliver_fn = deliver, .cpg_confchg_fn = change };
	struct cpg_name group;
	char line[256];
	int error, fd;
	if (argc < 3)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	/* poll() must see each line. */
	setvbuf(stdin, NULL, _IONBF, 0);
	group.length = (uint32_t)snprintf(group.value, sizeof group.value, "%s", argv[1]);
	members = atoi(argv[2]);
	/* A daemon that has just been started does not answer yet. */
	for (int tries = 0; (error = cpg_initialize(&handle, &callbacks)) != CS_OK && tries < 1000; tries++)
		usleep(10000);
	if (error != CS_OK)
		fail("cpg_initialize", error);
	while ((error = cpg_join(handle, &group)) == CS_ERR_TRY_AGAIN)
		usleep(10000);
	if (error != CS_OK)
		fail("cpg_join", error);
	if ((error = cpg_fd_get(handle, &fd)) != CS_OK)
		fail("cpg_fd_get", error);
	for (;;) {
		struct pollfd watched[2] = { { fd, POLLIN, 0 }, { STDIN_FILENO, POLLIN, 0 } };
		poll(watched, 2, -1);
		if (watched[0].revents)
			dispatch_all();
		if (watched[1].revents) {
			if (!fgets(line, sizeof line, stdin))
				break;
			command(line);
		}
	}
	cpg_finalize(handle);
	return 0;
}

/* Cases that repeat the end of connections between two utipc nodes, `--rounds` times: the helper connects from the
 * other node, sends, shuts down and closes. */
#include "check.h"

int rounds;

/* The sizes of the messages of a round: none, one, many, mixed, and more than fit the window. */
static const int sizes[][21] = {
	{0},
	{100, 0},
	{10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 0},
	{3000, 1, 66000, 1, 0},
	{60000, 60000, 60000, 60000, 60000, 0},
};

static uint8_t data[70000];

/* Sends what belongs to this round, shuts down and closes. */
void leave(Address to, int kind, int round)
{
	int fd = a_socket(kind);
	OK(connect(fd, ADDR(to), sizeof to));
	fill(data, sizeof data, (unsigned)round);
	for (const int *size = sizes[round % (int)COUNT(sizes)]; *size; size++)
		EQ(send(fd, data, (size_t)*size, 0), *size);
	OK(shutdown(fd, SHUT_RDWR));
	close(fd);
}

static void until_the_end(int fd, int kind, int round)
{
	for (const int *size = sizes[round % (int)COUNT(sizes)]; *size; size++) {
		long n = 0, more = 1;
		while (n < *size && more > 0) {
			more = recv(fd, data + n, (size_t)(kind == SOCK_STREAM ? *size - n : (long)sizeof data), 0);
			if (more < 0)
				fail(__FILE__, __LINE__, "round %d: after %ld bytes of %d: %s", round, n, *size, strerror(errno));
			n += more;
		}
		EQ(n, *size);
		IS(filled(data, (size_t)n, (unsigned)round));
	}
	for (int i = 0; i < 2; i++) {
		long n = recv(fd, data, sizeof data, 0);
		if (n != 0)
			fail(__FILE__, __LINE__, "round %d: in place of the end: %ld, %s", round, n, n < 0 ? strerror(errno) : "data");
	}
}

static void shutdown_and_close(int kind)
{
	Address address;
	int listening = listener(kind, &address);
	char text[64];
	snprintf(text, sizeof text, "leave %u %d %d", address.addr.name.name.type, kind, rounds);
	SAME(ask(text), "ok", 3);
	for (int round = 0; round < rounds; round++) {
		int fd = (int)OK(accept(listening, NULL, NULL));
		set_timeout(fd, SO_RCVTIMEO, 20000);
		/* Every second time all data waits when the helper shuts down. */
		if (round % 2)
			nap(1);
		until_the_end(fd, kind, round);
		close(fd);
	}
}

static void packets(void)
{
	shutdown_and_close(SOCK_SEQPACKET);
}

static void stream(void)
{
	shutdown_and_close(SOCK_STREAM);
}

const struct test_case pair_cases[] = {
	{"pair/shutdown-and-close-seqpacket", "8.3", packets, true},
	{"pair/shutdown-and-close-stream", "8.3", stream, true},
	{NULL, NULL, NULL, false},
};

/* epoll: level, edge, one-shot, and the life of registrations. */
#include "check.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>

static long long now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000ll + now.tv_nsec / 1000;
}

static int instance(void)
{
	return (int)OK(epoll_create1(EPOLL_CLOEXEC));
}

static void add(int epoll, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.u64 = 0x100000000ull + (unsigned)fd};
	OK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
}

static void modify(int epoll, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.u64 = 0x100000000ull + (unsigned)fd};
	OK(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event));
}

/* The events of `fd`, the only descriptor that may have any; 0 if none occur within `ms`. */
static unsigned next(int epoll, int fd, int ms)
{
	struct epoll_event events[4];
	long n = OK(epoll_wait(epoll, events, 4, ms));
	if (n == 0)
		return 0;
	EQ(n, 1);
	EQ(events[0].data.u64, 0x100000000ull + (unsigned)fd);
	return events[0].events;
}

static void level(void)
{
	Address name = service(a_type(), 1);
	int to = bound(SOCK_RDM, name), from = a_socket(SOCK_RDM), epoll = instance();
	char byte;
	add(epoll, to, EPOLLIN);
	EQ(next(epoll, to, 0), 0);
	EQ(sent_to(from, "x", 1, name), 1);
	for (int i = 0; i < 3; i++)
		EQ(next(epoll, to, 5000), EPOLLIN);
	EQ(recv(to, &byte, 1, 0), 1);
	EQ(next(epoll, to, 0), 0);
	modify(epoll, to, EPOLLIN | EPOLLWRNORM | EPOLLWRBAND);
	EQ(next(epoll, to, 0), 0);
	modify(epoll, to, EPOLLIN | EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND);
	EQ(next(epoll, to, 0), EPOLLOUT);
	OK(epoll_ctl(epoll, EPOLL_CTL_DEL, to, NULL));
	EQ(next(epoll, to, 0), 0);
}

static void edge(void)
{
	Address name = service(a_type(), 1);
	struct pair ends = connected(SOCK_STREAM);
	struct {
		int reader, writer;
		Address to;
	} both[] = {{bound(SOCK_RDM, name), a_socket(SOCK_RDM), name}, {.reader = ends.server, .writer = ends.client}};
	for (size_t i = 0; i < COUNT(both); i++) {
		int epoll = instance(), fd = both[i].reader;
		char text[10];
		add(epoll, fd, EPOLLIN | EPOLLET);
		for (int round = 0; round < 3; round++) {
			/* Each message is an edge: on the kernel always, on utipc if all before it were read (row
			 * 8.11). */
			if (both[i].to.family)
				EQ(sent_to(both[i].writer, "x", 1, both[i].to), 1);
			else
				EQ(send(both[i].writer, "x", 1, 0), 1);
			EQ(next(epoll, fd, 5000), EPOLLIN);
			EQ(next(epoll, fd, 50), 0);
			if (engine == UTIPC)
				EQ(recv(fd, text, sizeof text, 0), 1);
		}
		blocking(fd, false);
		int got = DIFFERS("8.11", 0, 3);
		while (got < 3)
			got += (int)OK(recv(fd, text, sizeof text, 0));
		ERR(recv(fd, text, sizeof text, 0), EAGAIN);
		EQ(next(epoll, fd, 50), 0);
	}
}

static void edge_of_what_is_there(void)
{
	Address name = service(a_type(), 1);
	int to = bound(SOCK_RDM, name), from = a_socket(SOCK_RDM), epoll = instance();
	EQ(sent_to(from, "x", 1, name), 1);
	arrives(to);
	add(epoll, to, EPOLLIN | EPOLLET);
	EQ(next(epoll, to, 5000), EPOLLIN);
	EQ(next(epoll, to, 50), 0);
	modify(epoll, to, EPOLLIN | EPOLLET);
	EQ(next(epoll, to, 5000), EPOLLIN); /* EPOLL_CTL_MOD checks again */
	EQ(next(epoll, to, 50), 0);
}

static void edge_of_writing(void)
{
	static uint8_t data[20000];
	struct pair ends = connected(SOCK_STREAM);
	int epoll = instance();
	blocking(ends.client, false);
	add(epoll, ends.client, EPOLLOUT | EPOLLET);
	EQ(next(epoll, ends.client, 5000), EPOLLOUT);
	EQ(next(epoll, ends.client, 50), 0);
	size_t sent = 0, got = 0;
	for (long n; (n = send(ends.client, data, sizeof data, 0)) > 0;)
		sent += (size_t)n;
	EQ(errno, EAGAIN);
	EQ(next(epoll, ends.client, 50), 0);
	while (got < sent)
		got += (size_t)OK(recv(ends.server, data, sizeof data, 0));
	EQ(next(epoll, ends.client, 5000), EPOLLOUT);
}

static void edge_of_the_end(void)
{
	struct pair ends = connected(SOCK_SEQPACKET);
	int epoll = instance();
	add(epoll, ends.server, EPOLLIN | EPOLLRDHUP | EPOLLET);
	EQ(next(epoll, ends.server, 0), 0);
	close(ends.client);
	int end = EPOLLIN | EPOLLHUP; /* TIPC has no half-close */
	EQ(next(epoll, ends.server, 5000), end);
	int again = (int)next(epoll, ends.server, 100); /* a state change and a message: at most one more */
	IS(again == 0 || again == end);
	EQ(next(epoll, ends.server, 50), 0);
}

static void edge_of_a_connection(void)
{
	Address address;
	int listening = listener(SOCK_STREAM, &address), fd = a_socket(SOCK_STREAM | SOCK_NONBLOCK), epoll = instance();
	ERR(connect(fd, ADDR(address), sizeof address), EINPROGRESS);
	uint32_t asked = EPOLLIN | EPOLLOUT | EPOLLET;
	add(epoll, fd, asked);
	EQ(next(epoll, fd, 0), 0);
	OK(accept(listening, NULL, NULL));
	EQ(next(epoll, fd, 5000), EPOLLOUT);
	/* A registration from before connect() is notified too. */
	fd = a_socket(SOCK_STREAM | SOCK_NONBLOCK), epoll = instance();
	add(epoll, fd, asked);
	EQ(next(epoll, fd, 0), EPOLLOUT);
	ERR(connect(fd, ADDR(address), sizeof address), EINPROGRESS);
	OK(accept(listening, NULL, NULL));
	EQ(next(epoll, fd, 5000), EPOLLOUT);
}

static void edge_of_a_listener(void)
{
	Address address;
	int listening = listener(SOCK_STREAM, &address), epoll = instance();
	blocking(listening, false);
	add(epoll, listening, EPOLLIN | EPOLLET);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 3; i++) {
			int fd = a_socket(SOCK_STREAM | SOCK_NONBLOCK);
			ERR(connect(fd, ADDR(address), sizeof address), EINPROGRESS);
		}
		int got = 0;
		while (got < 3) {
			EQ(next(epoll, listening, 5000), EPOLLIN);
			while (accept(listening, NULL, NULL) >= 0)
				got++;
			EQ(errno, EAGAIN);
		}
		EQ(got, 3);
	}
}

static void one_shot(void)
{
	Address name = service(a_type(), 1);
	int to = bound(SOCK_RDM, name), from = a_socket(SOCK_RDM), epoll = instance();
	add(epoll, to, EPOLLIN | EPOLLONESHOT);
	for (int round = 0; round < 2; round++) {
		EQ(sent_to(from, "x", 1, name), 1);
		EQ(next(epoll, to, 5000), EPOLLIN);
		EQ(next(epoll, to, 50), 0);
		EQ(sent_to(from, "x", 1, name), 1);
		EQ(next(epoll, to, 50), 0);
		modify(epoll, to, EPOLLIN | EPOLLONESHOT);
		EQ(next(epoll, to, 5000), EPOLLIN);
		char byte;
		for (int i = 0; i < 2; i++)
			EQ(recv(to, &byte, 1, 0), 1);
		modify(epoll, to, EPOLLIN | EPOLLONESHOT);
		EQ(next(epoll, to, 50), 0);
	}
}

static void hang_up_unasked(void)
{
	struct pair ends = connected(SOCK_STREAM);
	int epoll = instance();
	add(epoll, ends.server, 0);
	EQ(next(epoll, ends.server, 0), 0);
	close(ends.client);
	EQ(next(epoll, ends.server, 5000), EPOLLHUP);
}

static void registrations(void)
{
	int fd = a_socket(SOCK_STREAM), epoll = instance();
	struct epoll_event event = {.events = EPOLLIN};
	ERR(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event), ENOENT);
	ERR(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, &event), ENOENT);
	OK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
	ERR(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), EEXIST);
	ERR(epoll_ctl(epoll, 77, fd, &event), EINVAL);
	/* A copy of the descriptor is a second registration of the same socket. */
	int copy = dup(fd);
	OK(epoll_ctl(epoll, EPOLL_CTL_ADD, copy, &event));
	close(copy);
	close(fd);
	ERR(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), EBADF);
	/* The last close ends the registration. */
	EQ(next(epoll, fd, 0), 0);
	int next_fd = a_socket(SOCK_STREAM);
	OK(epoll_ctl(epoll, EPOLL_CTL_ADD, next_fd, &event));
}

static void *wait_once(void *epoll)
{
	static struct epoll_event event;
	EQ(epoll_wait(*(int *)epoll, &event, 1, 5000), 1);
	return &event;
}

static void woken_in_another_thread(void)
{
	Address name = service(a_type(), 1);
	int to = bound(SOCK_RDM, name), from = a_socket(SOCK_RDM), epoll = instance();
	pthread_t thread;
	void *event;
	EQ(pthread_create(&thread, NULL, wait_once, &epoll), 0);
	nap(50);
	add(epoll, to, EPOLLIN | EPOLLET); /* while the other waits */
	nap(50);
	EQ(sent_to(from, "x", 1, name), 1);
	EQ(pthread_join(thread, &event), 0);
	EQ(((struct epoll_event *)event)->events, EPOLLIN);
}

static void nested(void)
{
	Address name = service(a_type(), 1);
	int to = bound(SOCK_RDM, name), from = a_socket(SOCK_RDM), inner = instance(), outer = instance();
	add(inner, to, EPOLLIN);
	add(outer, inner, EPOLLIN);
	EQ(next(outer, inner, 0), 0);
	EQ(sent_to(from, "x", 1, name), 1);
	EQ(next(outer, inner, 5000), EPOLLIN);
	EQ(events_of(inner, POLLIN, 0), POLLIN);
}

static void mixed_with_others(void)
{
	Address name = service(a_type(), 1);
	int to = bound(SOCK_RDM, name), from = a_socket(SOCK_RDM), epoll = instance(), pipes[2];
	OK(pipe(pipes));
	add(epoll, to, EPOLLIN);
	add(epoll, pipes[0], EPOLLIN);
	EQ(sent_to(from, "x", 1, name), 1);
	arrives(to);
	EQ(write(pipes[1], "x", 1), 1);
	struct epoll_event events[4];
	EQ(epoll_wait(epoll, events, 4, 1000), 2);
	ERR(epoll_wait(epoll, events, 0, 0), EINVAL);
	EQ(epoll_pwait(epoll, events, 1, 1000, NULL), 1);
}

/* Waits that end at once, while they look, while they fall asleep, and asleep. Every `next` with an event is followed
 * by a receive that may block, so that a lost wake-up or a false alarm is noticed. */
enum { ROUNDS = 3000 };

static void pause_for(int round)
{
	long long until = now_us() + round * 7 % 150;
	while (now_us() < until)
		;
}

static void echo(int fd, int epoll)
{
	char text[8];
	for (int round = 0; round < ROUNDS; round++) {
		EQ(next(epoll, fd, 5000), EPOLLIN);
		EQ(recv(fd, text, sizeof text, 0), 4);
		pause_for(round);
		EQ(send(fd, text, 4, 0), 4);
	}
}

static void ask_for_echo(int fd, int epoll)
{
	for (int round = 0; round < ROUNDS; round++) {
		char text[8];
		EQ(send(fd, &round, 4, 0), 4);
		pause_for(round * 3);
		EQ(next(epoll, fd, 5000), EPOLLIN);
		EQ(recv(fd, text, sizeof text, 0), 4);
		SAME(text, &round, 4);
		if (round % 100 == 0)
			EQ(next(epoll, fd, 0), 0);
	}
}

static void *echoing(void *of)
{
	int fd = *(int *)of, epoll = instance();
	add(epoll, fd, EPOLLIN);
	echo(fd, epoll);
	return NULL;
}

static void pauses_between_threads(void)
{
	struct pair ends = connected(SOCK_SEQPACKET);
	int epoll = instance();
	pthread_t thread;
	add(epoll, ends.client, EPOLLIN);
	EQ(pthread_create(&thread, NULL, echoing, &ends.server), 0);
	ask_for_echo(ends.client, epoll);
	EQ(pthread_join(thread, NULL), 0);
}

static void pauses_between_processes(void)
{
	Address name = service(a_type(), 1);
	int ready[2], status;
	char byte;
	OK(pipe(ready));
	pid_t server = (pid_t)OK(fork());
	if (server == 0) {
		int listening = a_socket(SOCK_SEQPACKET);
		OK(bind(listening, ADDR(name), sizeof name));
		OK(listen(listening, 1));
		EQ(write(ready[1], "x", 1), 1);
		int fd = (int)OK(accept(listening, NULL, NULL));
		echoing(&fd);
		/* Its end would be an event of the last message. */
		IS(recv(fd, &byte, 1, 0) <= 0);
		_exit(0);
	}
	EQ(read(ready[0], &byte, 1), 1);
	int fd = a_socket(SOCK_SEQPACKET), epoll = instance();
	OK(connect(fd, ADDR(name), sizeof name));
	add(epoll, fd, EPOLLIN);
	ask_for_echo(fd, epoll);
	OK(close(fd));
	OK(waitpid(server, &status, 0));
	EQ(status, 0);
}

const struct test_case epoll_cases[] = {
	{"epoll/level", "epoll(7)", level, false},
	{"epoll/edge", "epoll(7)", edge, false},
	{"epoll/edge-of-pending-data", "epoll(7)", edge_of_what_is_there, false},
	{"epoll/edge-of-writing", "8.11", edge_of_writing, false},
	{"epoll/edge-of-the-end", "8.11", edge_of_the_end, false},
	{"epoll/edge-of-a-connection", "8.11", edge_of_a_connection, false},
	{"epoll/edge-of-a-listener", "epoll(7)", edge_of_a_listener, false},
	{"epoll/one-shot", "epoll(7)", one_shot, false},
	{"epoll/hang-up-unasked", "8.11", hang_up_unasked, false},
	{"epoll/registrations", "epoll_ctl(2)", registrations, false},
	{"epoll/woken-in-another-thread", "epoll_wait(2)", woken_in_another_thread, false},
	{"epoll/nested", "epoll(7)", nested, false},
	{"epoll/mixed-with-others", "epoll(7)", mixed_with_others, false},
	{"epoll/pauses-between-threads", "epoll(7)", pauses_between_threads, false},
	{"epoll/pauses-between-processes", "epoll(7)", pauses_between_processes, false},
	{NULL, NULL, NULL, false},
};

/* poll, ppoll, select, pselect: the events reported in each state. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <time.h>

/* Some programs request all events except a few. */
#define ALL (POLLIN | POLLPRI | POLLOUT | POLLRDHUP | POLLRDNORM | POLLRDBAND | POLLWRNORM | POLLWRBAND)
#define READABLE (POLLIN | POLLRDNORM)
static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_RDM, SOCK_DGRAM};

static void open_sockets(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		int fd = a_socket(types[i]);
		EQ(events_of(fd, ALL, 0), POLLOUT);
		EQ(events_of(fd, 0, 0), 0);
		/* TIPC does not report the synonyms. */
		EQ(events_of(fd, POLLWRNORM | POLLWRBAND, 0), 0);
		EQ(events_of(fd, POLLIN, 50), 0);
	}
}

static void connectionless(void)
{
	Address name = service(a_type(), 1);
	int to = bound(SOCK_RDM, name), from = a_socket(SOCK_RDM);
	char byte;
	EQ(events_of(to, ALL, 0), POLLOUT);
	EQ(sent_to(from, "x", 1, name), 1);
	arrives(to);
	EQ(events_of(to, ALL, 0), POLLOUT | READABLE);
	EQ(events_of(to, POLLIN, 0), POLLIN);
	EQ(events_of(to, POLLRDNORM, 0), POLLRDNORM);
	EQ(recv(to, &byte, 1, 0), 1);
	EQ(events_of(to, ALL, 0), POLLOUT);
}

static void listening(void)
{
	for (size_t i = 0; i < 2; i++) {
		Address address;
		int fd = listener(types[i], &address);
		EQ(events_of(fd, ALL, 0), 0);
		int client = a_socket(types[i] | SOCK_NONBLOCK);
		ERR(connect(client, ADDR(address), sizeof address), EINPROGRESS);
		arrives(fd);
		EQ(events_of(fd, ALL, 0), READABLE);
		EQ(events_of(client, ALL, 0), 0);
		close((int)OK(accept(fd, NULL, NULL)));
		EQ(events_of(fd, ALL, 0), 0);
	}
}

static void established(void)
{
	for (size_t i = 0; i < 2; i++) {
		struct pair ends = connected(types[i]);
		char byte;
		EQ(events_of(ends.client, ALL, 0), POLLOUT);
		EQ(events_of(ends.server, ALL, 0), POLLOUT);
		EQ(send(ends.client, "x", 1, 0), 1);
		arrives(ends.server);
		EQ(events_of(ends.server, ALL, 0), POLLOUT | READABLE);
		EQ(recv(ends.server, &byte, 1, 0), 1);
		EQ(events_of(ends.server, ALL, 0), POLLOUT);
	}
}

/* The kernel reports HUP at once; utipc after the last message, unless UTIPC_EXACT_HUP is set (row 8.11). */
static bool exact(void)
{
	return engine == KERNEL || getenv("UTIPC_EXACT_HUP") != NULL;
}

static void await_hang_up(int fd)
{
	for (long long end = now_ms() + 5000; !(events_of(fd, 0, 0) & POLLHUP) && now_ms() < end;)
		nap(5);
}

static void ended(void)
{
	for (size_t i = 0; i < 2; i++) {
		struct pair ends = connected(types[i]);
		char byte;
		EQ(send(ends.client, "x", 1, 0), 1);
		arrives(ends.server);
		close(ends.client);
		if (exact())
			await_hang_up(ends.server);
		else
			nap(100);
		/* Before the hang-up a send does not wait: it fails. */
		EQ(events_of(ends.server, ALL, 0), READABLE | (exact() ? POLLHUP : POLLOUT));
		ERR(send(ends.server, &byte, 1, MSG_NOSIGNAL), EPIPE);
		EQ(recv(ends.server, &byte, 1, 0), 1);
		await_hang_up(ends.server);
		EQ(events_of(ends.server, ALL, 0), READABLE | POLLHUP);
		EQ(events_of(ends.server, 0, 0), POLLHUP);
		EQ(recv(ends.server, &byte, 1, 0), -1);
		EQ(events_of(ends.server, ALL, 0), READABLE | POLLHUP);
	}
}

static void hang_up_and_unread_messages(void)
{
	/* An event loop that closes what has hung up loses what it has not read. */
	static const int counts[] = {1, 2, 100};
	for (size_t i = 0; i < 2; i++) {
		for (size_t variant = 0; variant < 4 * COUNT(counts); variant++) {
			struct pair ends = connected(types[i]);
			int sent = counts[variant / 4], got = 0, events;
			bool orderly = variant % 2, polled_before = variant / 2 % 2;
			if (polled_before)
				EQ(events_of(ends.server, POLLIN, 0), 0);
			for (int k = 0; k < sent; k++)
				EQ(send(ends.client, "x", 1, 0), 1);
			if (orderly)
				OK(shutdown(ends.client, SHUT_RDWR));
			close(ends.client);
			if (exact())
				await_hang_up(ends.server);
			while (!((events = events_of(ends.server, POLLIN, 5000)) & POLLHUP)) {
				char byte;
				EQ(events, POLLIN);
				long n = recv(ends.server, &byte, 1, MSG_DONTWAIT);
				if (n == 1)
					got++;
				else if (n == 0 || errno != EAGAIN)
					break;
			}
			EQ(got, exact() ? 0 : sent);
			close(ends.server);
		}
	}
}

struct later {
	int fd;
	Address to;
};

static void *send_later(void *argument)
{
	struct later *l = argument;
	nap(100);
	OK(l->to.family ? sent_to(l->fd, "x", 1, l->to) : send(l->fd, "x", 1, 0));
	return NULL;
}

static void woken_by_a_message(void)
{
	Address name = service(a_type(), 1);
	struct pair ends = connected(SOCK_STREAM);
	struct {
		int reader;
		struct later sender;
	} both[] = {{bound(SOCK_RDM, name), {a_socket(SOCK_RDM), name}}, {ends.server, {.fd = ends.client}}};
	for (size_t i = 0; i < COUNT(both); i++) {
		pthread_t thread;
		long long began = now_ms();
		EQ(pthread_create(&thread, NULL, send_later, &both[i].sender), 0);
		EQ(events_of(both[i].reader, POLLIN, 5000), POLLIN);
		IS(now_ms() - began >= 80);
		IS(now_ms() - began < 4000);
		pthread_join(thread, NULL);
	}
}

static void *close_later(void *fd)
{
	nap(100);
	close(*(int *)fd);
	return NULL;
}

static void woken_by_the_end(void)
{
	struct pair ends = connected(SOCK_SEQPACKET);
	pthread_t thread;
	EQ(pthread_create(&thread, NULL, close_later, &ends.client), 0);
	EQ(events_of(ends.server, 0, 5000), POLLHUP); /* even if no events are requested */
	pthread_join(thread, NULL);
}

static void *accept_later(void *fd)
{
	nap(100);
	OK(accept(*(int *)fd, NULL, NULL));
	return NULL;
}

static void woken_by_the_connection(void)
{
	Address address;
	int listening_socket = listener(SOCK_STREAM, &address), fd = a_socket(SOCK_STREAM | SOCK_NONBLOCK);
	pthread_t thread;
	ERR(connect(fd, ADDR(address), sizeof address), EINPROGRESS);
	EQ(pthread_create(&thread, NULL, accept_later, &listening_socket), 0);
	EQ(events_of(fd, ALL, 5000), POLLOUT);
	pthread_join(thread, NULL);
}

static void no_false_alarm(void)
{
	/* A program that polls and then blocks in a read could hang if no message is there. */
	for (size_t i = 0; i < COUNT(types); i++) {
		Address name = service(a_type(), 1);
		int to, from;
		if (i < 2) {
			struct pair ends = connected(types[i]);
			to = ends.server, from = ends.client;
		} else {
			to = bound(types[i], name), from = a_socket(types[i]);
			OK(connect(from, ADDR(name), sizeof name));
		}
		char byte;
		EQ(events_of(to, POLLIN, 0), 0);
		for (int round = 0; round < 4; round++) {
			EQ(send(from, "x", 1, 0), 1);
			arrives(to);
			EQ(recv(to, &byte, 1, 0), 1);
			EQ(events_of(to, POLLIN, 20), 0);
			EQ(events_of(from, POLLIN, 0), 0);
		}
	}
}

/* A polling client; returns 0 if its socket was readable only when there was something to read. */
static int polling_client(Address address, int type)
{
	int fd = socket(AF_TIPC, type, 0);
	if (fd < 0 || connect(fd, ADDR(address), sizeof address))
		return 1;
	for (int i = 0; i < 20; i++) {
		if (events_of(fd, POLLIN, 3) || send(fd, "x", 1, 0) != 1)
			return 2;
	}
	shutdown(fd, SHUT_RDWR);
	return 0;
}

static void no_false_alarm_when_the_server_forks(void)
{
	/* The parent accepts and a child serves; neither makes the client readable. */
	for (size_t i = 0; i < 2; i++) {
		Address address;
		int fd = listener(types[i], &address), status;
		pid_t client = fork();
		if (client == 0)
			_exit(polling_client(address, types[i]));
		int accepted = (int)OK(accept(fd, NULL, NULL));
		pid_t server = fork();
		if (server == 0) {
			char byte;
			while (recv(accepted, &byte, 1, 0) == 1)
				continue;
			_exit(0);
		}
		close(accepted);
		EQ(waitpid(client, &status, 0), client);
		EQ(status, 0);
		EQ(waitpid(server, &status, 0), server);
		EQ(status, 0);
		close(fd);
	}
}

static void several(void)
{
	Address name = service(a_type(), 1);
	int pipes[2];
	OK(pipe(pipes));
	struct pollfd wait[] = {
		{.fd = a_socket(SOCK_RDM), .events = POLLIN}, {.fd = -1, .events = POLLIN},	 {.fd = bound(SOCK_RDM, name), .events = POLLIN},
		{.fd = pipes[0], .events = POLLIN},	      {.fd = pipes[1], .events = POLLOUT}, {.fd = 999, .events = POLLIN},
	};
	EQ(poll(wait, 6, 0), 2);
	EQ(wait[4].revents, POLLOUT);
	EQ(wait[5].revents, POLLNVAL);
	EQ(sent_to(wait[0].fd, "x", 1, name), 1);
	EQ(write(pipes[1], "x", 1), 1);
	arrives(wait[2].fd);
	EQ(poll(wait, 6, -1), 4);
	EQ(wait[0].revents, 0);
	EQ(wait[1].revents, 0);
	EQ(wait[2].revents, POLLIN);
	EQ(wait[3].revents, POLLIN);
	OK(ppoll(wait, 5, &(struct timespec){.tv_sec = 1}, NULL));
	EQ(wait[2].revents, POLLIN);
	wait[0].events = 0;
	EQ(ppoll(wait, 1, &(struct timespec){.tv_nsec = 30000000}, NULL), 0);
	ERR(ppoll(wait, 1, &(struct timespec){.tv_nsec = -1}, NULL), EINVAL);
}

static void selecting(void)
{
	Address name = service(a_type(), 1);
	int to = bound(SOCK_RDM, name), from = a_socket(SOCK_RDM);
	struct pair ends = connected(SOCK_STREAM);
	fd_set in, out, error;
	for (int round = 0; round < 2; round++) {
		FD_ZERO(&in);
		FD_ZERO(&out);
		FD_ZERO(&error);
		int fds[] = {to, ends.client, ends.server};
		for (size_t i = 0; i < COUNT(fds); i++) {
			FD_SET(fds[i], &in);
			FD_SET(fds[i], &out);
			FD_SET(fds[i], &error);
		}
		struct timeval none = {0, 0};
		EQ(select(100, &in, &out, &error, &none), round ? 5 : 3);
		EQ(FD_ISSET(to, &in), round);
		IS(FD_ISSET(to, &out));
		EQ(FD_ISSET(ends.server, &in), round);
		EQ(FD_ISSET(ends.client, &in), 0);
		IS(!FD_ISSET(to, &error));
		EQ(sent_to(from, "x", 1, name), 1);
		EQ(send(ends.client, "x", 1, 0), 1);
		arrives(to);
		arrives(ends.server);
	}
	FD_ZERO(&in);
	FD_SET(from, &in);
	EQ(pselect(from + 1, &in, NULL, NULL, &(struct timespec){.tv_nsec = 30000000}, NULL), 0);
	IS(!FD_ISSET(from, &in));
	struct timeval left = {5, 0};
	FD_SET(to, &in);
	EQ(select(100, &in, NULL, NULL, &left), 1);
	IS(left.tv_sec >= 3);
	/* The end of a connection makes a socket readable, and so ready for select. */
	close(ends.client);
	FD_ZERO(&in);
	FD_SET(ends.server, &in);
	EQ(select(100, &in, NULL, NULL, NULL), 1);
	int gone = dup(from);
	close(gone);
	FD_SET(gone, &in);
	ERR(select(100, &in, NULL, NULL, NULL), EBADF);
}

static void pselect_wakes(void)
{
	Address name = service(a_type(), 1);
	struct later l = {a_socket(SOCK_RDM), name};
	int to = bound(SOCK_RDM, name);
	pthread_t thread;
	EQ(pthread_create(&thread, NULL, send_later, &l), 0);
	fd_set in;
	FD_ZERO(&in);
	FD_SET(to, &in);
	sigset_t none;
	sigemptyset(&none);
	EQ(pselect(to + 1, &in, NULL, NULL, &(struct timespec){.tv_sec = 5}, &none), 1);
	IS(FD_ISSET(to, &in));
	pthread_join(thread, NULL);
}

const struct test_case poll_cases[] = {
	{"poll/open", "8.11", open_sockets, false},
	{"poll/connectionless", "8.11", connectionless, false},
	{"poll/listening-and-connecting", "8.11", listening, false},
	{"poll/established", "8.11", established, false},
	{"poll/ended", "8.11", ended, false},
	{"poll/hang-up-and-unread-messages", "8.11", hang_up_and_unread_messages, false},
	{"poll/woken-by-a-message", "poll(2)", woken_by_a_message, false},
	{"poll/woken-by-the-end", "8.11", woken_by_the_end, false},
	{"poll/woken-by-the-connection", "8.11", woken_by_the_connection, false},
	{"poll/no-false-alarm", "8.11", no_false_alarm, false},
	{"poll/no-false-alarm-when-the-server-forks", "8.11", no_false_alarm_when_the_server_forks, false},
	{"poll/several", "poll(2), ppoll(2)", several, false},
	{"poll/select", "select(2)", selecting, false},
	{"poll/pselect", "pselect(2)", pselect_wakes, false},
	{NULL, NULL, NULL, false},
};

/* The end of connections and sockets, as seen from both ends. */
#include "check.h"

#include <pthread.h>
#include <signal.h>

static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};

static void shutdown_modes(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		struct pair ends = connected(types[i]);
		ERR(shutdown(ends.client, SHUT_RD), EINVAL);
		ERR(shutdown(ends.client, SHUT_WR), EINVAL);
		ERR(shutdown(ends.client, 3), EINVAL);
		ERR(shutdown(ends.client, -1), EINVAL);
		EQ(send(ends.client, "x", 1, 0), 1);
		EQ(receive(ends.server, 0)->length, 1);
		OK(shutdown(ends.client, SHUT_RDWR));
		OK(shutdown(ends.client, SHUT_RDWR));
	}
}

static void shutdown_elsewhere(void)
{
	Address address;
	ERR(shutdown(a_socket(SOCK_STREAM), SHUT_RDWR), ENOTCONN);
	ERR(shutdown(listener(SOCK_STREAM, &address), SHUT_RDWR), ENOTCONN);
	ERR(shutdown(a_socket(SOCK_RDM), SHUT_RDWR), ENOTCONN);
	ERR(shutdown(a_socket(SOCK_RDM), SHUT_RD), EINVAL);
	ERR(shutdown(a_socket(SOCK_STREAM), SHUT_WR), EINVAL);
}

static void own_end_after_shutdown(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		struct pair ends = connected(types[i]);
		char byte = 0;
		EQ(send(ends.server, "unread", 6, 0), 6);
		arrives(ends.client);
		OK(shutdown(ends.client, SHUT_RDWR));
		ERR(send(ends.client, &byte, 1, MSG_NOSIGNAL), EPIPE);
		EQ(events_of(ends.client, POLLIN | POLLOUT | POLLRDHUP, 0), POLLIN | POLLHUP);
		ERR(recv(ends.client, &byte, 1, MSG_DONTWAIT), EAGAIN);
		ERR(recv(ends.client, &byte, 1, 0), ENOTCONN);
		ERR(recv(ends.client, &byte, 1, 0), ENOTCONN);
	}
}

static void orderly_end(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		struct pair ends = connected(types[i]);
		char byte = 0;
		EQ(send(ends.client, "x", 1, 0), 1);
		OK(shutdown(ends.client, SHUT_RDWR));
		EQ(recv(ends.server, &byte, 1, 0), 1);
		EQ(byte, 'x');
		arrives(ends.server);
		EQ(events_of(ends.server, POLLIN | POLLOUT | POLLRDHUP, 0), POLLIN | POLLHUP);
		EQ(recv(ends.server, &byte, 1, 0), 0);
		/* After it was read, the kernel reports nothing more (row 8.3: utipc repeats it). */
		set_timeout(ends.server, SO_RCVTIMEO, 100);
		if (engine == KERNEL)
			ERR(recv(ends.server, &byte, 1, 0), EAGAIN);
		else
			EQ(recv(ends.server, &byte, 1, 0), 0);
		ERR(send(ends.server, &byte, 1, MSG_NOSIGNAL), EPIPE);
		EQ(events_of(ends.server, POLLIN | POLLOUT, 0), POLLIN | POLLHUP);
	}
}

static void close_is_a_reset(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		struct pair ends = connected(types[i]);
		char byte = 0;
		EQ(send(ends.client, "x", 1, 0), 1);
		close(ends.client);
		EQ(recv(ends.server, &byte, 1, 0), 1);
		ERR(recv(ends.server, &byte, 1, 0), ECONNRESET);
		ERR(read(ends.server, &byte, 1), ECONNRESET); /* repeatedly */
		ERR(send(ends.server, &byte, 1, MSG_NOSIGNAL), EPIPE);
		EQ(get_socket_option(ends.server, SO_ERROR), 0);
	}
}

static void close_with_control_buffer(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		struct pair ends = connected(types[i]);
		close(ends.client);
		const struct message *m = receive(ends.server, 0);
		EQ(m->length, 0);
		IS(m->has_error);
		EQ(m->error[0], TIPC_ERR_NO_PORT);
		EQ(m->error[1], 0);
		IS(!m->has_returned);
		IS(!m->has_name);
	}
}

static void shutdown_with_control_buffer(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		struct pair ends = connected(types[i]);
		Address own = own_address(ends.client);
		OK(shutdown(ends.client, SHUT_RDWR));
		const struct message *m = receive(ends.server, 0);
		EQ(m->length, 0);
		IS(m->has_error);
		EQ(m->error[0], TIPC_CONN_SHUTDOWN);
		EQ(m->error[1], 0);
		IS(!m->has_returned);
		SAME(&m->from, &own, sizeof own);
	}
}

static void unread_comes_back(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		for (int orderly = 0; orderly < 2; orderly++) {
			struct pair ends = connected(types[i]);
			EQ(send(ends.client, "first", 5, 0), 5);
			EQ(send(ends.client, "second", 6, 0), 6);
			arrives(ends.server);
			if (orderly)
				OK(shutdown(ends.server, SHUT_RDWR));
			else
				close(ends.server);
			arrives(ends.client);
			const struct message *m = receive(ends.client, 0);
			EQ(m->length, 0);
			IS(m->has_error);
			EQ(m->error[0], orderly ? TIPC_CONN_SHUTDOWN : TIPC_ERR_NO_PORT);
			/* On one host utipc reports only the end (row 8.3). */
			if (engine == UTIPC && m->error[1] == 0) {
				IS(!m->has_returned);
				continue;
			}
			EQ(m->error[1], 5);
			IS(m->has_returned);
			EQ(m->returned, 5);
			SAME(m->returned_data, "first", 5);
		}
	}
}

static void unread_comes_back_unasked(void)
{
	struct pair ends = connected(SOCK_SEQPACKET);
	char byte;
	EQ(send(ends.client, "x", 1, 0), 1);
	arrives(ends.server);
	close(ends.server);
	ERR(recv(ends.client, &byte, 1, 0), ECONNRESET);
	ends = connected(SOCK_SEQPACKET);
	EQ(send(ends.client, "x", 1, 0), 1);
	arrives(ends.server);
	OK(shutdown(ends.server, SHUT_RDWR));
	EQ(recv(ends.client, &byte, 1, 0), 0);
}

static void returned_in_part(void)
{
	static uint8_t data[4000];
	struct pair ends = connected(SOCK_SEQPACKET);
	fill(data, sizeof data, 1);
	EQ(send(ends.client, data, sizeof data, 0), sizeof data);
	arrives(ends.server);
	close(ends.server);
	const struct message *m = receive(ends.client, 0);
	EQ(m->error[1], 1024);
	EQ(m->returned, 1024);
	IS(filled(m->returned_data, 1024, 1));
}

static void partly_read_is_not_returned(void)
{
	struct pair ends = connected(SOCK_STREAM);
	char byte;
	EQ(send(ends.client, "first", 5, 0), 5);
	arrives(ends.server);
	EQ(send(ends.client, "second", 6, 0), 6);
	EQ(recv(ends.server, &byte, 1, 0), 1);
	close(ends.server);
	const struct message *m = receive(ends.client, 0);
	if (engine == UTIPC) {
		/* On one host: nothing, or the messages that the node itself holds (row 8.3). */
		EQ(m->error[0], TIPC_ERR_NO_PORT);
		return;
	}
	EQ(m->error[0], TIPC_ERR_NO_PORT);
	EQ(m->returned, 6);
	SAME(m->returned_data, "second", 6);
}

static void all_is_delivered_before_the_end(void)
{
	static uint8_t data[60000];
	for (size_t i = 0; i < COUNT(types); i++) {
		struct pair ends = connected(types[i]);
		fill(data, sizeof data, 9);
		EQ(send(ends.client, data, sizeof data, 0), sizeof data);
		EQ(send(ends.client, "end", 3, 0), 3);
		close(ends.client);
		size_t got = 0;
		while (got < sizeof data + 3) {
			long n = recv(ends.server, data, sizeof data, 0);
			IS(n > 0);
			got += (size_t)n;
		}
		ERR(recv(ends.server, data, 1, 0), ECONNRESET);
	}
}

static volatile sig_atomic_t signals;

static void count_signal(int number)
{
	(void)number;
	signals++;
}

static void broken_pipe_signal(void)
{
	/* The kernel's TIPC never raises SIGPIPE, whatever the flags. */
	char byte = 0;
	signal(SIGPIPE, count_signal);
	for (size_t i = 0; i < COUNT(types); i++) {
		struct pair ends = connected(types[i]);
		close(ends.server);
		arrives(ends.client);
		ERR(send(ends.client, &byte, 1, 0), EPIPE);
		ERR(write(ends.client, &byte, 1), EPIPE);
		ERR(send(ends.client, &byte, 1, MSG_NOSIGNAL), EPIPE);
	}
	EQ(signals, 0);
}

static void die_connected(int fd)
{
	(void)fd;
	raise(SIGKILL);
}

static void killed_holder(void)
{
	struct pair ends = connected(SOCK_STREAM);
	pid_t pid = child(die_connected, 0);
	char byte;
	close(ends.client); /* only the child holds it now */
	ERR(recv(ends.server, &byte, 1, 0), ECONNRESET);
	(void)pid;
}

static void wait_for_end(int fd)
{
	char byte;
	ERR(recv(fd, &byte, 1, 0), ECONNRESET);
}

static void reader_is_woken(void)
{
	struct pair ends = connected(SOCK_SEQPACKET);
	pid_t pid = fork();
	if (pid == 0) {
		close(ends.client);
		wait_for_end(ends.server);
		_exit(0);
	}
	close(ends.server);
	nap(100);
	close(ends.client);
	reap(pid);
}

static void *shut_later(void *fd)
{
	nap(150);
	OK(shutdown(*(int *)fd, SHUT_RDWR));
	return NULL;
}

static void own_reader_is_woken(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		struct pair ends = connected(types[i]);
		pthread_t thread;
		char byte;
		EQ(pthread_create(&thread, NULL, shut_later, &ends.client), 0);
		ERR(recv(ends.client, &byte, 1, 0), ENOTCONN);
		pthread_join(thread, NULL);
	}
}

static void writer_is_woken(void)
{
	static uint8_t data[60000];
	for (size_t i = 0; i < COUNT(types); i++) {
		struct pair ends = connected(types[i]);
		blocking(ends.client, false);
		while (send(ends.client, data, sizeof data, 0) > 0)
			continue;
		EQ(errno, EAGAIN);
		blocking(ends.client, true);
		pthread_t thread;
		EQ(pthread_create(&thread, NULL, shut_later, &ends.server), 0);
		ERR(send(ends.client, data, sizeof data, MSG_NOSIGNAL), EPIPE);
		pthread_join(thread, NULL);
	}
}

static void connectionless_queue_is_returned(void)
{
	Address name = service(a_type(), 1);
	int to = bound(SOCK_RDM, name), from = a_socket(SOCK_RDM);
	set_option(from, TIPC_DEST_DROPPABLE, 0);
	EQ(sent_to(from, "one", 3, name), 3);
	EQ(sent_to(from, "two", 3, own_address(to)), 3);
	arrives(to);
	Address was = own_address(to);
	close(to);
	const struct message *m = receive(from, 0);
	EQ(m->length, 0);
	EQ(m->error[0], TIPC_ERR_NO_PORT);
	EQ(m->error[1], 3);
	SAME(m->returned_data, "one", 3);
	IS(m->has_name);
	EQ(m->name[0], name.addr.name.name.type);
	SAME(&m->from, &was, sizeof was);
	m = receive(from, 0);
	SAME(m->returned_data, "two", 3);
	IS(!m->has_name);
}

static void connectionless_shutdown(void)
{
	/* It returns ENOTCONN, but still empties the queue and ends waiting calls. */
	Address name = service(a_type(), 1);
	int to = bound(SOCK_RDM, name), from = a_socket(SOCK_RDM);
	char byte;
	set_option(from, TIPC_DEST_DROPPABLE, 0);
	EQ(sent_to(from, "one", 3, name), 3);
	arrives(to);
	ERR(shutdown(to, SHUT_RDWR), ENOTCONN);
	EQ(receive(from, 0)->error[0], TIPC_CONN_SHUTDOWN);
	ERR(recv(to, &byte, 1, MSG_DONTWAIT), EAGAIN);
	ERR(recv(to, &byte, 1, 0), ENOTCONN);
	EQ(events_of(to, POLLIN | POLLOUT | POLLRDHUP, 0), POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
	/* Messages still arrive and are read. */
	EQ(sent_to(from, "two", 3, name), 3);
	EQ(recv(to, &byte, 1, 0), 1);
}

static int waiting;

static void *receive_one(void *ended)
{
	char byte;
	errno = 0;
	long n = recv(waiting, &byte, 1, 0);
	*(int *)ended = n < 0 ? errno : 0;
	return NULL;
}

static void connectionless_shutdown_wakes(void)
{
	/* With and without a sender that has written to the socket before. */
	static const int kinds[] = {SOCK_RDM, SOCK_DGRAM};
	for (size_t i = 0; i < COUNT(kinds); i++)
		for (int written = 0; written < 2; written++) {
			Address name = service(a_type(), 1);
			waiting = bound(kinds[i], name);
			int from = a_socket(kinds[i]), ended = 0;
			for (int n = 0; n < 20 * written; n++) {
				EQ(sent_to(from, "x", 1, name), 1);
				EQ(receive(waiting, 0)->length, 1);
			}
			pthread_t thread;
			EQ(pthread_create(&thread, NULL, receive_one, &ended), 0);
			nap(100);
			ERR(shutdown(waiting, SHUT_RDWR), ENOTCONN);
			EQ(pthread_join(thread, NULL), 0);
			EQ(ended, ENOTCONN);
		}
}

const struct test_case teardown_cases[] = {
	{"end/shutdown-modes", "8.3", shutdown_modes, false},
	{"end/shutdown-without-connection", "8.3", shutdown_elsewhere, false},
	{"end/own-end-after-shutdown", "8.3", own_end_after_shutdown, false},
	{"end/orderly", "8.3", orderly_end, false},
	{"end/close-is-a-reset", "8.3", close_is_a_reset, false},
	{"end/close-with-control-buffer", "8.10", close_with_control_buffer, false},
	{"end/shutdown-with-control-buffer", "8.10", shutdown_with_control_buffer, false},
	{"end/unread-comes-back", "8.3", unread_comes_back, false},
	{"end/unread-comes-back-unasked", "8.3", unread_comes_back_unasked, false},
	{"end/returned-in-part", "2.5", returned_in_part, false},
	{"end/partly-read-is-not-returned", "8.3", partly_read_is_not_returned, false},
	{"end/sent-data-is-delivered-first", "8.3", all_is_delivered_before_the_end, false},
	{"end/no-broken-pipe-signal", "8.3", broken_pipe_signal, false},
	{"end/killed-holder", "8.3", killed_holder, false},
	{"end/waiting-reader-is-woken", "8.3", reader_is_woken, false},
	{"end/own-reader-is-woken", "8.3", own_reader_is_woken, false},
	{"end/waiting-writer-is-woken", "8.3", writer_is_woken, false},
	{"end/connectionless-queue-is-returned", "8.3", connectionless_queue_is_returned, false},
	{"end/connectionless-shutdown", "8.3", connectionless_shutdown, false},
	{"end/connectionless-shutdown-wakes-readers", "8.3", connectionless_shutdown_wakes, false},
	{NULL, NULL, NULL, false},
};

/* Connections: ways to set them up, errors, and the state of both ends afterwards. */
#include "check.h"

#include <fcntl.h>
#include <pthread.h>

static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_RDM, SOCK_DGRAM};

struct acceptor {
	pthread_t thread;
	int listening, accepted;
	Address from;
	socklen_t length;
	int delay;
};

static void *accept_one(void *argument)
{
	struct acceptor *a = argument;
	nap(a->delay);
	a->length = sizeof a->from;
	a->accepted = (int)OK(accept(a->listening, ADDR(a->from), &a->length));
	return NULL;
}

static void start(struct acceptor *a, int listening, int delay)
{
	a->listening = listening;
	a->delay = delay;
	EQ(pthread_create(&a->thread, NULL, accept_one, a), 0);
}

static void finish(struct acceptor *a)
{
	EQ(pthread_join(a->thread, NULL), 0);
}

static void exchange(int one, int other)
{
	char text[8];
	EQ(send(one, "ping", 4, 0), 4);
	EQ(recv(other, text, 4, MSG_WAITALL), 4);
	EQ(send(other, "pong", 4, 0), 4);
	EQ(recv(one, text, 4, MSG_WAITALL), 4);
	SAME(text, "pong", 4);
}

static void by_name(void)
{
	for (size_t i = 0; i < 2; i++) {
		Address address;
		struct acceptor a;
		int fd = a_socket(types[i]);
		start(&a, listener(types[i], &address), 0);
		OK(connect(fd, ADDR(address), sizeof address));
		finish(&a);
		EQ(a.length, sizeof a.from);
		Address own = own_address(fd);
		SAME(&a.from, &own, sizeof own);
		exchange(fd, a.accepted);
	}
}

static void by_port(void)
{
	for (size_t i = 0; i < 2; i++) {
		Address address;
		struct acceptor a;
		int fd = a_socket(types[i]), listening = listener(types[i], &address);
		start(&a, listening, 0);
		address = own_address(listening);
		OK(connect(fd, ADDR(address), sizeof address));
		finish(&a);
		IS(peer_address(fd).addr.id.ref != address.addr.id.ref); /* the accepted socket's own port */
		exchange(fd, a.accepted);
	}
}

static void by_range(void)
{
	Address address;
	listener(SOCK_STREAM, &address);
	Address whole = range(address.addr.name.name.type, 0, 10);
	ERR(connect(a_socket(SOCK_STREAM), ADDR(whole), sizeof whole), EINVAL);
	ERR(connect(a_socket(SOCK_SEQPACKET), ADDR(whole), sizeof whole), EINVAL);
}

static void waits_for_accept(void)
{
	Address address;
	struct acceptor a;
	int fd = a_socket(SOCK_SEQPACKET);
	start(&a, listener(SOCK_SEQPACKET, &address), 200);
	long long began = now_ms();
	OK(connect(fd, ADDR(address), sizeof address));
	IS(now_ms() - began >= 150);
	finish(&a);
}

static void unknown_name(void)
{
	for (size_t i = 0; i < 2; i++) {
		Address unbound = service(a_type(), 1), address;
		int fd = a_socket(types[i]);
		long long began = now_ms();
		ERR(connect(fd, ADDR(unbound), sizeof unbound), EHOSTUNREACH);
		IS(now_ms() - began < 5000); /* less than the 8 s of an unanswered request */
		ERR(getpeername(fd, ADDR(address), &(socklen_t){sizeof address}), ENOTCONN);
		/* Nothing has changed: the same socket can try again. */
		struct acceptor a;
		start(&a, listener(types[i], &address), 0);
		OK(connect(fd, ADDR(address), sizeof address));
		finish(&a);
		exchange(fd, a.accepted);
	}
}

static void unknown_port(void)
{
	for (size_t i = 0; i < 2; i++) {
		int gone = a_socket(types[i]), fd = a_socket(types[i]);
		Address unbound = own_address(gone);
		close(gone);
		ERR(connect(fd, ADDR(unbound), sizeof unbound), ECONNREFUSED);
		/* This socket can no longer connect. */
		ERR(connect(fd, ADDR(unbound), sizeof unbound), EINVAL);
		EQ(get_socket_option(fd, SO_ERROR), 0);
		EQ(events_of(fd, POLLIN | POLLOUT, 0), POLLIN | POLLHUP);
	}
}

static void no_listener(void)
{
	for (size_t i = 0; i < 2; i++) {
		Address name = service(a_type(), 1);
		bound(types[i], name);
		int fd = a_socket(types[i]);
		ERR(connect(fd, ADDR(name), sizeof name), ECONNREFUSED);
	}
}

static void connectionless_listener(void)
{
	Address name = service(a_type(), 1);
	bound(SOCK_RDM, name);
	int fd = a_socket(SOCK_STREAM);
	set_option(fd, TIPC_CONN_TIMEOUT, 300);
	long long began = now_ms();
	ERR(connect(fd, ADDR(name), sizeof name), ETIMEDOUT);
	IS(now_ms() - began >= 250);
	IS(now_ms() - began < 5000);
}

static void timed_out(void)
{
	Address address;
	struct acceptor a;
	int listening = listener(SOCK_STREAM, &address), fd = a_socket(SOCK_STREAM);
	set_option(fd, TIPC_CONN_TIMEOUT, 200);
	ERR(connect(fd, ADDR(address), sizeof address), ETIMEDOUT);
	/* The kernel continues to connect; utipc has given up (row 8.2). */
	set_option(fd, TIPC_CONN_TIMEOUT, 5000);
	start(&a, listening, 0);
	if (engine == KERNEL)
		/* EISCONN: accepted before the second call. */
		IS(connect(fd, ADDR(address), sizeof address) == 0 || errno == EISCONN);
	else
		ERR(connect(fd, ADDR(address), sizeof address), EINVAL);
	finish(&a);
}

static void timeout_zero(void)
{
	Address address;
	struct acceptor a;
	int fd = a_socket(SOCK_STREAM), listening = listener(SOCK_STREAM, &address);
	set_option(fd, TIPC_CONN_TIMEOUT, 0);
	if (engine == KERNEL) {
		ERR(connect(fd, ADDR(address), sizeof address), EINPROGRESS);
		return;
	}
	start(&a, listening, 0);
	OK(connect(fd, ADDR(address), sizeof address));
	finish(&a);
}

static void refused_arguments(void)
{
	Address address;
	listener(SOCK_STREAM, &address);
	for (size_t i = 0; i < COUNT(types); i++) {
		int fd = a_socket(types[i]);
		Address a = address;
		ERR(connect(fd, ADDR(a), sizeof a - 1), EINVAL);
		ERR(connect(fd, ADDR(a), sizeof a + 1), EINVAL);
		ERR(connect(fd, ADDR(a), 0), EINVAL);
		ERR(connect(fd, NULL, sizeof a), EFAULT);
		a.family = AF_INET;
		ERR(connect(fd, ADDR(a), sizeof a), EINVAL);
		a = address;
		a.addrtype = 4;
		ERR(connect(fd, ADDR(a), sizeof a), EINVAL);
		a = range(address.addr.name.name.type, 3, 2);
		ERR(connect(fd, ADDR(a), sizeof a), EINVAL);
	}
	Address none = {.family = AF_UNSPEC};
	ERR(connect(a_socket(SOCK_STREAM), ADDR(none), sizeof none), EINVAL);
}

static void refused_states(void)
{
	Address address, name = service(a_type(), 1);
	int listening = listener(SOCK_STREAM, &address);
	ERR(connect(listening, ADDR(address), sizeof address), EINVAL);
	struct pair ends = connected_to(SOCK_STREAM, listening, address);
	ERR(connect(ends.client, ADDR(address), sizeof address), EISCONN);
	ERR(connect(ends.server, ADDR(address), sizeof address), EISCONN);
	shutdown(ends.client, SHUT_RDWR);
	ERR(connect(ends.client, ADDR(address), sizeof address), EINVAL);
	/* Bound sockets cannot connect; after unbinding they can. */
	int fd = bound(SOCK_STREAM, name);
	ERR(connect(fd, ADDR(address), sizeof address), EOPNOTSUPP);
	ERR(sent_to(fd, "x", 1, address), EOPNOTSUPP);
	OK(bind(fd, NULL, 0));
	struct acceptor a;
	start(&a, listening, 0);
	OK(connect(fd, ADDR(address), sizeof address));
	finish(&a);
}

static void without_connection(void)
{
	char byte = 0;
	for (size_t i = 0; i < 2; i++) {
		int fd = a_socket(types[i]);
		ERR(send(fd, &byte, 1, MSG_NOSIGNAL), ENOTCONN);
		ERR(recv(fd, &byte, 1, 0), ENOTCONN);
		ERR(recv(fd, &byte, 1, MSG_DONTWAIT), ENOTCONN);
		ERR(shutdown(fd, SHUT_RDWR), ENOTCONN);
		Address address;
		int listening = listener(types[i], &address);
		ERR(send(listening, &byte, 1, MSG_NOSIGNAL), ENOTCONN);
		ERR(sent_to(listening, &byte, 1, address), ENOTCONN);
		blocking(listening, false);
		ERR(recv(listening, &byte, 1, 0), EAGAIN);
		blocking(listening, true);
		set_timeout(listening, SO_RCVTIMEO, 100);
		ERR(recv(listening, &byte, 1, 0), EAGAIN);
	}
	for (size_t i = 2; i < COUNT(types); i++) {
		int fd = a_socket(types[i]);
		ERR(send(fd, &byte, 1, 0), EDESTADDRREQ);
		ERR(write(fd, &byte, 1), EDESTADDRREQ);
		ERR(shutdown(fd, SHUT_RDWR), ENOTCONN);
	}
}

static void default_peer(void)
{
	for (size_t i = 2; i < COUNT(types); i++) {
		Address name = service(a_type(), 1), other = service(a_type(), 1), none = {.family = AF_UNSPEC};
		int fd = a_socket(types[i]), one = bound(types[i], name), two = bound(types[i], other);
		char text[8];
		OK(connect(fd, ADDR(name), sizeof name));
		EQ(send(fd, "a", 1, 0), 1);
		EQ(write(fd, "b", 1), 1);
		EQ(sent_to(fd, "c", 1, other), 1);
		for (int n = 0; n < 2; n++)
			EQ(recv(one, text, sizeof text, 0), 1);
		EQ(text[0], 'b');
		EQ(recv(two, text, sizeof text, 0), 1);
		EQ(text[0], 'c');
		/* Any socket may still send to it. */
		EQ(sent_to(two, "d", 1, own_address(fd)), 1);
		EQ(recv(fd, text, sizeof text, 0), 1);
		OK(connect(fd, ADDR(other), sizeof other));
		EQ(send(fd, "e", 1, 0), 1);
		EQ(recv(two, text, sizeof text, 0), 1);
		OK(connect(fd, ADDR(none), sizeof none));
		ERR(send(fd, "f", 1, 0), EDESTADDRREQ);
	}
}

static void default_peer_is_asked_late(void)
{
	/* Only stored: each message is looked up again, and all members of a range get it. */
	Address name = service(a_type(), 1), whole = range(a_type(), 1, 9);
	int fd = a_socket(SOCK_RDM);
	char byte;
	OK(connect(fd, ADDR(name), sizeof name));
	ERR(send(fd, "x", 1, 0), EHOSTUNREACH);
	int late = bound(SOCK_RDM, name);
	EQ(send(fd, "x", 1, 0), 1);
	EQ(recv(late, &byte, 1, 0), 1);
	int members[] = {bound(SOCK_RDM, service(whole.addr.nameseq.type, 2)), bound(SOCK_RDM, service(whole.addr.nameseq.type, 7))};
	OK(connect(fd, ADDR(whole), sizeof whole));
	EQ(send(fd, "y", 1, 0), 1);
	for (int i = 0; i < 2; i++)
		EQ(recv(members[i], &byte, 1, 0), 1);
}

static void across_types(void)
{
	/* The kind of the listening socket is not compared; the accepted socket has the listener's kind. */
	Address address;
	struct acceptor a;
	int fd = a_socket(SOCK_STREAM);
	start(&a, listener(SOCK_SEQPACKET, &address), 0);
	OK(connect(fd, ADDR(address), sizeof address));
	finish(&a);
	EQ(get_socket_option(a.accepted, SO_TYPE), SOCK_SEQPACKET);
	exchange(fd, a.accepted);
}

static void listener_closes(void)
{
	Address address;
	int listening = listener(SOCK_STREAM, &address), fd = a_socket(SOCK_STREAM | SOCK_NONBLOCK);
	ERR(connect(fd, ADDR(address), sizeof address), EINPROGRESS);
	close(listening);
	IS(events_of(fd, POLLOUT, 5000) & POLLHUP);
	EQ(get_socket_option(fd, SO_ERROR), ECONNREFUSED);
}

static void client_gives_up(void)
{
	Address address, a;
	char byte;
	int listening = listener(SOCK_STREAM, &address), fd = a_socket(SOCK_STREAM | SOCK_NONBLOCK);
	ERR(connect(fd, ADDR(address), sizeof address), EINPROGRESS);
	arrives(listening);
	close(fd);
	nap(50);
	/* The request is still pending; its connection ends at once. */
	int accepted = (int)OK(accept(listening, NULL, NULL));
	IS(events_of(accepted, POLLIN, 5000) & POLLHUP);
	ERR(getpeername(accepted, ADDR(a), &(socklen_t){sizeof a}), ENOTCONN);
	ERR(recv(accepted, &byte, 1, 0), ECONNRESET);
}

static void many_wait(void)
{
	Address address;
	int listening = listener(SOCK_SEQPACKET, &address), clients[40];
	OK(close(a_socket(SOCK_RDM)));
	for (size_t i = 0; i < COUNT(clients); i++) {
		clients[i] = a_socket(SOCK_SEQPACKET | SOCK_NONBLOCK);
		ERR(connect(clients[i], ADDR(address), sizeof address), EINPROGRESS);
	}
	/* More than the backlog of listen(), and in order of arrival. */
	for (size_t i = 0; i < COUNT(clients); i++) {
		Address from, own = own_address(clients[i]);
		int fd = (int)OK(accept(listening, ADDR(from), &(socklen_t){sizeof from}));
		SAME(&from, &own, sizeof own);
		close(fd);
	}
}

static void accept_waits(void)
{
	Address address;
	int listening = listener(SOCK_STREAM, &address);
	set_timeout(listening, SO_RCVTIMEO, 150);
	long long began = now_ms();
	ERR(accept(listening, NULL, NULL), EAGAIN);
	IS(now_ms() - began >= 100);
	blocking(listening, false);
	ERR(accept(listening, NULL, NULL), EAGAIN);
}

static void accept_flags(void)
{
	static const int flags[] = {0, SOCK_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC};
	Address address, from;
	int listening = listener(SOCK_STREAM, &address);
	blocking(listening, false); /* not inherited */
	for (size_t i = 0; i < COUNT(flags); i++) {
		int fd = a_socket(SOCK_STREAM | SOCK_NONBLOCK);
		ERR(connect(fd, ADDR(address), sizeof address), EINPROGRESS);
		arrives(listening);
		socklen_t length = 7;
		int accepted = (int)OK(accept4(listening, ADDR(from), &length, flags[i]));
		EQ(length, sizeof from);
		EQ(OK(fcntl(accepted, F_GETFL)) & O_NONBLOCK, flags[i] & SOCK_NONBLOCK ? O_NONBLOCK : 0);
		EQ(OK(fcntl(accepted, F_GETFD)), flags[i] & SOCK_CLOEXEC ? FD_CLOEXEC : 0);
		EQ(get_socket_option(accepted, SO_ACCEPTCONN), 0);
	}
	ERR(accept4(listening, NULL, NULL, 0x1000000), EINVAL);
	EQ(get_socket_option(listening, SO_ACCEPTCONN), 1);
}

static void importance_is_the_clients(void)
{
	Address address;
	int listening = listener(SOCK_SEQPACKET, &address), fd = a_socket(SOCK_SEQPACKET | SOCK_NONBLOCK);
	set_option(listening, TIPC_IMPORTANCE, TIPC_LOW_IMPORTANCE);
	set_option(fd, TIPC_IMPORTANCE, TIPC_HIGH_IMPORTANCE);
	ERR(connect(fd, ADDR(address), sizeof address), EINPROGRESS);
	int accepted = (int)OK(accept(listening, NULL, NULL));
	IS(events_of(fd, POLLOUT, 5000) & POLLOUT);
	EQ(get_option(accepted, TIPC_IMPORTANCE), TIPC_HIGH_IMPORTANCE);
	EQ(get_option(fd, TIPC_IMPORTANCE), TIPC_HIGH_IMPORTANCE);
}

static void names_of_connections(void)
{
	for (size_t i = 0; i < 2; i++) {
		Address address;
		int listening = listener(types[i], &address);
		struct pair ends = connected_to(types[i], listening, address);
		for (int round = 0; round < 2; round++) {
			int from = round ? ends.client : ends.server, to = round ? ends.server : ends.client;
			EQ(send(from, "x", 1, 0), 1);
			const struct message *m = receive(to, 0);
			EQ(m->length, 1);
			IS(m->has_name);
			EQ(m->name[0], address.addr.name.name.type);
			EQ(m->name[1], 1);
			EQ(m->name[2], 1);
			Address own = own_address(from);
			EQ(m->from_length, sizeof own);
			SAME(&m->from, &own, sizeof own);
		}
		ends = connected_to(types[i], listening, own_address(listening));
		EQ(send(ends.client, "x", 1, 0), 1);
		IS(!receive(ends.server, 0)->has_name);
		EQ(send(ends.server, "x", 1, 0), 1);
		IS(!receive(ends.client, 0)->has_name);
	}
}

const struct test_case connect_cases[] = {
	{"connect/by-name", "8.2", by_name, false},
	{"connect/by-port", "8.2", by_port, false},
	{"connect/not-by-range", "8.2", by_range, false},
	{"connect/waits-for-accept", "19 row 2", waits_for_accept, false},
	{"connect/unknown-name-at-once", "8.2", unknown_name, false},
	{"connect/unknown-port-refused", "8.2", unknown_port, false},
	{"connect/bound-without-listen-refused", "19 row 7", no_listener, false},
	{"connect/to-a-connectionless-socket", "19 row 7", connectionless_listener, false},
	{"connect/timed-out", "8.2", timed_out, false},
	{"connect/timeout-zero", "8.2", timeout_zero, false},
	{"connect/refused-arguments", "8.2", refused_arguments, false},
	{"connect/refused-states", "8.2", refused_states, false},
	{"connect/without-connection", "8.2", without_connection, false},
	{"connect/default-peer", "8.1", default_peer, false},
	{"connect/default-peer-looked-up-per-message", "8.1", default_peer_is_asked_late, false},
	{"connect/across-types", "8.2", across_types, false},
	{"connect/listener-closes", "8.3", listener_closes, false},
	{"connect/client-gives-up", "8.2", client_gives_up, false},
	{"connect/more-than-the-backlog", "8.2", many_wait, false},
	{"accept/waits", "8.2", accept_waits, false},
	{"accept/flags", "accept4(2)", accept_flags, false},
	{"accept/importance-is-the-clients", "8.2", importance_is_the_clients, false},
	{"accept/destination-name", "8.10", names_of_connections, false},
	{NULL, NULL, NULL, false},
};

/* Non-blocking connects, and connections set up by their first message. */
#include "check.h"

#include <pthread.h>

static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};

static void in_progress(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		Address address;
		char byte = 0;
		int listening = listener(types[i], &address), fd = a_socket(types[i] | SOCK_NONBLOCK);
		ERR(connect(fd, ADDR(address), sizeof address), EINPROGRESS);
		ERR(connect(fd, ADDR(address), sizeof address), EALREADY);
		EQ(events_of(fd, POLLIN | POLLOUT, 0), 0);
		ERR(send(fd, &byte, 1, MSG_NOSIGNAL), ENOTCONN);
		ERR(recv(fd, &byte, 1, 0), EAGAIN);
		EQ(get_socket_option(fd, SO_ERROR), 0);
		int accepted = (int)OK(accept(listening, NULL, NULL));
		EQ(events_of(fd, POLLIN | POLLOUT, 5000), POLLOUT);
		EQ(get_socket_option(fd, SO_ERROR), 0);
		ERR(connect(fd, ADDR(address), sizeof address), EISCONN);
		EQ(send(fd, "x", 1, 0), 1);
		EQ(recv(accepted, &byte, 1, 0), 1);
	}
}

static void refused(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		Address name = service(a_type(), 1);
		char byte;
		bound(types[i], name);
		int fd = a_socket(types[i] | SOCK_NONBLOCK);
		ERR(connect(fd, ADDR(name), sizeof name), EINPROGRESS);
		EQ(events_of(fd, POLLIN | POLLOUT, 5000), POLLIN | POLLHUP);
		EQ(get_socket_option(fd, SO_ERROR), ECONNREFUSED);
		EQ(get_socket_option(fd, SO_ERROR), 0);
		ERR(connect(fd, ADDR(name), sizeof name), EINVAL);
		ERR(recv(fd, &byte, 1, 0), ECONNRESET);
		ERR(send(fd, &byte, 1, MSG_NOSIGNAL), EPIPE);
	}
}

static void refusal_is_told_once(void)
{
	Address name = service(a_type(), 1);
	char byte = 0;
	bound(SOCK_STREAM, name);
	int fd = a_socket(SOCK_STREAM | SOCK_NONBLOCK);
	ERR(connect(fd, ADDR(name), sizeof name), EINPROGRESS);
	IS(events_of(fd, POLLIN, 5000) & POLLHUP);
	ERR(send(fd, &byte, 1, MSG_NOSIGNAL), ECONNREFUSED);
	ERR(send(fd, &byte, 1, MSG_NOSIGNAL), EPIPE);
	fd = a_socket(SOCK_STREAM | SOCK_NONBLOCK);
	ERR(connect(fd, ADDR(name), sizeof name), EINPROGRESS);
	IS(events_of(fd, POLLIN, 5000) & POLLHUP);
	ERR(recv(fd, &byte, 1, 0), ECONNREFUSED);
	ERR(recv(fd, &byte, 1, 0), ECONNRESET);
}

static void unknown_name(void)
{
	Address name = service(a_type(), 1);
	int fd = a_socket(SOCK_STREAM | SOCK_NONBLOCK);
	ERR(connect(fd, ADDR(name), sizeof name), EHOSTUNREACH);
	ERR(connect(fd, ADDR(name), sizeof name), EHOSTUNREACH);
	EQ(get_socket_option(fd, SO_ERROR), 0);
}

static void then_wait(void)
{
	/* Requested without waiting, then awaited by a second, blocking call. */
	Address address;
	int listening = listener(SOCK_STREAM, &address), fd = a_socket(SOCK_STREAM | SOCK_NONBLOCK);
	ERR(connect(fd, ADDR(address), sizeof address), EINPROGRESS);
	int accepted = (int)OK(accept(listening, NULL, NULL));
	IS(events_of(fd, POLLOUT, 5000) & POLLOUT);
	blocking(fd, true);
	ERR(connect(fd, ADDR(address), sizeof address), EISCONN);
	close(accepted);
}

struct greeted {
	int listening, fd;
};

static void *accept_later(void *argument)
{
	struct greeted *g = argument;
	nap(150);
	g->fd = (int)OK(accept(g->listening, NULL, NULL));
	return NULL;
}

static void implied(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		Address address;
		struct greeted g = {.listening = listener(types[i], &address)};
		pthread_t thread;
		int fd = a_socket(types[i]);
		EQ(pthread_create(&thread, NULL, accept_later, &g), 0);
		EQ(sent_to(fd, "hello", 5, address), 5);
		EQ(pthread_join(thread, NULL), 0);
		const struct message *m = receive(g.fd, 0);
		EQ(m->length, 5);
		SAME(m->data, "hello", 5);
		IS(m->has_name);
		EQ(m->name[0], address.addr.name.name.type);
		EQ(send(g.fd, "welcome", 7, 0), 7);
		EQ(receive(fd, 0)->length, 7);
		Address own = own_address(fd), seen = peer_address(g.fd);
		SAME(&own, &seen, sizeof own);
		EQ(send(fd, "more", 4, 0), 4);
		EQ(receive(g.fd, 0)->length, 4);
	}
}

static void implied_in_a_loop(void)
{
	/* The first call waits for the server, the following ones ignore the address. */
	for (size_t i = 0; i < COUNT(types); i++) {
		Address address;
		struct greeted g = {.listening = listener(types[i], &address)};
		pthread_t thread;
		int fd = a_socket(types[i]);
		long long begun = now_ms();
		EQ(pthread_create(&thread, NULL, accept_later, &g), 0);
		EQ(sent_to(fd, "one", 3, address), 3);
		IS(now_ms() - begun >= 140);
		EQ(sent_to(fd, "two", 3, address), 3);
		EQ(sent_to(fd, "six", 3, address), 3);
		EQ(pthread_join(thread, NULL), 0);
		EQ(shutdown(fd, SHUT_RDWR), 0);
		char all[10];
		size_t got = 0;
		for (long n; (n = OK(recv(g.fd, all + got, sizeof all - got, 0))) > 0;)
			got += (size_t)n;
		EQ(got, 9);
		SAME(all, "onetwosix", 9);
	}
}

static void implied_in_time(void)
{
	/* The call succeeds when its time is over: the request stays pending. */
	for (size_t i = 0; i < COUNT(types); i++) {
		Address address;
		listener(types[i], &address);
		int fd = a_socket(types[i]);
		set_timeout(fd, SO_SNDTIMEO, 400);
		EQ(sent_to(fd, "one", 3, address), 3);
		ERR(sent_to(fd, "two", 3, address), ENOTCONN);
		if (engine == UTIPC) {
			/* The connect timeout ends the request (row 8.2). */
			fd = a_socket(types[i]);
			set_option(fd, TIPC_CONN_TIMEOUT, 200);
			EQ(sent_to(fd, "one", 3, address), 3);
			ERR(sendto(fd, "two", 3, MSG_NOSIGNAL, ADDR(address), sizeof address), EPIPE);
		}
	}
}

static void implied_refused_while_waiting(void)
{
	/* The call succeeds, and takes the error. */
	for (size_t i = 0; i < COUNT(types); i++) {
		Address address = service(a_type(), 1);
		char byte;
		bound(types[i], address);
		int fd = a_socket(types[i]);
		EQ(sent_to(fd, "one", 3, address), 3);
		EQ(get_socket_option(fd, SO_ERROR), 0);
		ERR(sendto(fd, "two", 3, MSG_NOSIGNAL, ADDR(address), sizeof address), EPIPE);
		ERR(recv(fd, &byte, 1, 0), ECONNRESET);
	}
}

static void implied_by_port(void)
{
	Address address;
	int listening = listener(SOCK_SEQPACKET, &address), fd = a_socket(SOCK_SEQPACKET | SOCK_NONBLOCK);
	EQ(sent_to(fd, "hello", 5, own_address(listening)), 5);
	int accepted = (int)OK(accept(listening, NULL, NULL));
	const struct message *m = receive(accepted, 0);
	EQ(m->length, 5);
	IS(!m->has_name);
}

static void implied_without_waiting(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		Address address;
		int listening = listener(types[i], &address), fd = a_socket(types[i] | SOCK_NONBLOCK);
		EQ(sent_to(fd, "hello", 5, address), 5);
		ERR(sent_to(fd, "again", 5, address), ENOTCONN);
		ERR(send(fd, "again", 5, 0), ENOTCONN);
		EQ(events_of(fd, POLLIN | POLLOUT, 0), 0);
		int accepted = (int)OK(accept(listening, NULL, NULL));
		EQ(receive(accepted, 0)->length, 5);
		EQ(events_of(fd, POLLOUT, 5000), POLLOUT);
		EQ(send(fd, "more", 4, 0), 4);
		EQ(receive(accepted, 0)->length, 4);
	}
}

static void implied_and_answered(void)
{
	/* The reply may arrive before the client checks. */
	Address address;
	int listening = listener(SOCK_SEQPACKET, &address), fd = a_socket(SOCK_SEQPACKET | SOCK_NONBLOCK);
	EQ(sent_to(fd, "ask", 3, address), 3);
	int accepted = (int)OK(accept(listening, NULL, NULL));
	EQ(receive(accepted, 0)->length, 3);
	EQ(send(accepted, "answer", 6, 0), 6);
	EQ(shutdown(accepted, SHUT_RDWR), 0);
	arrives(fd);
	EQ(receive(fd, 0)->length, 6);
	arrives(fd);
	EQ(receive(fd, 0)->length, 0);
}

static void implied_empty(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		Address address;
		int listening = listener(types[i], &address), fd = a_socket(types[i]);
		EQ(sent_to(fd, "", 0, address), 0); /* does not wait */
		int accepted = (int)OK(accept(listening, NULL, NULL));
		IS(events_of(fd, POLLOUT, 5000) & POLLOUT);
		EQ(send(fd, "x", 1, 0), 1);
		EQ(receive(accepted, 0)->length, 1);
	}
}

static void implied_largest(void)
{
	static uint8_t data[70000];
	for (size_t i = 0; i < COUNT(types); i++) {
		Address address;
		int listening = listener(types[i], &address), fd = a_socket(types[i] | SOCK_NONBLOCK);
		fill(data, sizeof data, 3);
		ERR(sent_to(fd, data, TIPC_MAX_USER_MSG_SIZE + 1, address), EMSGSIZE);
		EQ(sent_to(fd, data, TIPC_MAX_USER_MSG_SIZE, address), TIPC_MAX_USER_MSG_SIZE);
		int accepted = (int)OK(accept(listening, NULL, NULL));
		const struct message *m = receive(accepted, 0);
		EQ(m->length, TIPC_MAX_USER_MSG_SIZE);
		SAME(m->data, data, TIPC_MAX_USER_MSG_SIZE);
	}
}

static void implied_refused(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		Address unbound = service(a_type(), 1), address = service(a_type(), 1), bad = unbound;
		int fd = a_socket(types[i]);
		ERR(sent_to(fd, "x", 1, unbound), EHOSTUNREACH);
		bad.addrtype = 9;
		ERR(sent_to(fd, "x", 1, bad), EINVAL);
		bad = unbound;
		bad.family = AF_INET;
		ERR(sent_to(fd, "x", 1, bad), EINVAL);
		ERR(sendto(fd, "x", 1, 0, ADDR(unbound), sizeof unbound - 1), EINVAL);
		/* The destination does not listen: the message is lost, and the socket is unusable. */
		bound(types[i], address);
		blocking(fd, false);
		EQ(sent_to(fd, "x", 1, address), 1);
		EQ(events_of(fd, POLLIN | POLLOUT, 5000), POLLIN | POLLHUP);
		EQ(get_socket_option(fd, SO_ERROR), ECONNREFUSED);
	}
}

static void implied_returned(void)
{
	/* The data of the refused request comes back. */
	Address address = service(a_type(), 1);
	bound(SOCK_SEQPACKET, address);
	int fd = a_socket(SOCK_SEQPACKET | SOCK_NONBLOCK);
	EQ(sent_to(fd, "hello", 5, address), 5);
	IS(events_of(fd, POLLIN, 5000) & POLLHUP);
	EQ(get_socket_option(fd, SO_ERROR), ECONNREFUSED);
	const struct message *m = receive(fd, 0);
	EQ(m->length, 0);
	IS(m->has_error);
	EQ(m->error[0], TIPC_ERR_NO_PORT);
	EQ(m->error[1], 5);
	IS(m->has_returned);
	EQ(m->returned, 5);
	SAME(m->returned_data, "hello", 5);
}

static void address_is_ignored_later(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		Address unbound = service(a_type(), 1);
		struct pair ends = connected(types[i]);
		EQ(sent_to(ends.client, "x", 1, unbound), 1);
		EQ(receive(ends.server, 0)->length, 1);
	}
}

const struct test_case connecting_cases[] = {
	{"non-blocking/in-progress", "8.2", in_progress, false},
	{"non-blocking/refused", "8.2", refused, false},
	{"non-blocking/refusal-is-reported-once", "8.2", refusal_is_told_once, false},
	{"non-blocking/unknown-name-at-once", "8.2", unknown_name, false},
	{"non-blocking/then-blocking", "8.2", then_wait, false},
	{"implied/first-message-connects", "8.2", implied, false},
	{"implied/in-a-loop", "8.2", implied_in_a_loop, false},
	{"implied/in-time", "8.2", implied_in_time, false},
	{"implied/refused-while-waiting", "8.2", implied_refused_while_waiting, false},
	{"implied/by-port", "8.2", implied_by_port, false},
	{"implied/without-waiting", "8.2", implied_without_waiting, false},
	{"implied/answered-at-once", "8.2", implied_and_answered, false},
	{"implied/empty", "8.2", implied_empty, false},
	{"implied/largest", "8.1", implied_largest, false},
	{"implied/refused", "8.2", implied_refused, false},
	{"implied/refused-data-comes-back", "8.10", implied_returned, false},
	{"implied/address-is-ignored-when-connected", "8.2", address_is_ignored_later, false},
	{NULL, NULL, NULL, false},
};

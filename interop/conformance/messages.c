/* Connectionless messages: addresses, multicast, returned messages. */
#include "check.h"

static const int types[] = {SOCK_RDM, SOCK_DGRAM};

static void by_name_and_port(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		Address name = service(a_type(), 17);
		int to = bound(types[i], name), from = a_socket(types[i]);
		Address own = own_address(from);
		EQ(sent_to(from, "named", 5, name), 5);
		const struct message *m = receive(to, 0);
		EQ(m->length, 5);
		SAME(m->data, "named", 5);
		EQ(m->flags, 0);
		EQ(m->from_length, sizeof own);
		SAME(&m->from, &own, sizeof own);
		IS(m->has_name && !m->has_error && !m->has_returned);
		EQ(m->name[0], name.addr.name.name.type);
		EQ(m->name[1], 17);
		EQ(m->name[2], 17);
		EQ(sent_to(from, "direct", 6, own_address(to)), 6);
		m = receive(to, 0);
		EQ(m->length, 6);
		IS(!m->has_name);
		EQ(sent_to(to, "answer", 6, m->from), 6);
		EQ(receive(from, 0)->length, 6);
		EQ(sent_to(from, "self", 4, own), 4);
		EQ(receive(from, 0)->length, 4);
		/* Node 0 is this node. */
		own.addr.id.node = 0;
		EQ(sent_to(to, "zero", 4, own), 4);
		EQ(receive(from, 0)->length, 4);
	}
}

static void across_types(void)
{
	Address name = service(a_type(), 1);
	int to = bound(SOCK_DGRAM, name), from = a_socket(SOCK_RDM);
	EQ(sent_to(from, "x", 1, name), 1);
	EQ(receive(to, 0)->length, 1);
}

static void to_a_connection_socket(void)
{
	/* Dropped silently, or returned on request. */
	Address address;
	int listening = listener(SOCK_STREAM, &address), from = a_socket(SOCK_RDM);
	EQ(sent_to(from, "x", 1, address), 1);
	IS(quiet(from));
	set_option(from, TIPC_DEST_DROPPABLE, 0);
	EQ(sent_to(from, "x", 1, address), 1);
	EQ(receive(from, 0)->error[0], TIPC_ERR_NO_PORT);
	struct pair ends = connected(SOCK_STREAM);
	EQ(sent_to(from, "x", 1, own_address(ends.client)), 1);
	EQ(receive(from, 0)->error[0], TIPC_ERR_NO_PORT);
	(void)listening;
}

static void unbound_destination(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		int fd = a_socket(types[i]), gone = a_socket(types[i]);
		Address name = service(a_type(), 1), whole = range(a_type(), 0, 9), dead = own_address(gone);
		close(gone);
		ERR(sent_to(fd, "x", 1, name), EHOSTUNREACH);
		ERR(sent_to(fd, "x", 1, whole), EHOSTUNREACH);
		ERR(sent_to(fd, "x", 1, port(77, 0x01234567)), EHOSTUNREACH);
		EQ(sent_to(fd, "x", 1, dead), 1);
		IS(quiet(fd));
		set_option(fd, TIPC_DEST_DROPPABLE, 0);
		EQ(sent_to(fd, "lost", 4, dead), 4);
		const struct message *m = receive(fd, 0);
		EQ(m->length, 0);
		EQ(m->flags, 0);
		EQ(m->error[0], TIPC_ERR_NO_PORT);
		EQ(m->error[1], 4);
		EQ(m->returned, 4);
		SAME(m->returned_data, "lost", 4);
		IS(!m->has_name);
		SAME(&m->from, &dead, sizeof dead);
		/* No data and no ancillary data. */
		EQ(sent_to(fd, "", 0, dead), 0);
		m = receive(fd, 0);
		EQ(m->error[0], TIPC_ERR_NO_PORT);
		EQ(m->error[1], 0);
		IS(!m->has_returned);
	}
}

static void refused(void)
{
	Address name = service(a_type(), 1);
	bound(SOCK_RDM, name);
	for (size_t i = 0; i < COUNT(types); i++) {
		int fd = a_socket(types[i]);
		Address a = name;
		ERR(sendto(fd, "x", 1, 0, ADDR(a), sizeof a - 1), EINVAL);
		ERR(sendto(fd, "x", 1, 0, ADDR(a), 1), EINVAL);
		ERR(sendto(fd, "x", 1, 0, ADDR(a), 500), EINVAL);
		ERR(sendto(fd, "x", 1, 0, NULL, 0), EDESTADDRREQ);
		ERR(sendto(fd, NULL, 10, 0, ADDR(a), sizeof a), EFAULT);
		a.family = AF_INET;
		ERR(sent_to(fd, "x", 1, a), EINVAL);
		a.family = AF_UNSPEC;
		ERR(sent_to(fd, "x", 1, a), EINVAL);
		a = name;
		a.addrtype = 0;
		ERR(sent_to(fd, "x", 1, a), EINVAL);
		a.addrtype = 77;
		ERR(sent_to(fd, "x", 1, a), EINVAL);
		a = range(name.addr.name.name.type, 2, 1);
		ERR(sent_to(fd, "x", 1, a), EINVAL);
		/* Sending to reserved types is allowed. */
		a = service(63, 4711);
		ERR(sent_to(fd, "x", 1, a), EHOSTUNREACH);
	}
}

static void multicast(void)
{
	uint32_t type = a_type();
	int members[] = {bound(SOCK_RDM, service(type, 5)), bound(SOCK_RDM, range(type, 10, 20)), bound(SOCK_DGRAM, range(type, 15, 30)),
			 bound(SOCK_RDM, range(type, 100, 200))};
	int from = a_socket(SOCK_RDM);
	EQ(sent_to(from, "all", 3, range(type, 5, 15)), 3);
	for (size_t i = 0; i < 3; i++) {
		const struct message *m = receive(members[i], 0);
		EQ(m->length, 3);
		IS(m->has_name);
		EQ(m->name[0], type);
		EQ(m->name[1], 5);
		EQ(m->name[2], 15);
	}
	IS(quiet(members[3]));
	ERR(sent_to(from, "all", 3, range(type, 40, 50)), EHOSTUNREACH);
	EQ(sent_to(from, "one", 3, range(type, 150, 150)), 3);
	EQ(receive(members[3], 0)->length, 3);
}

static void multicast_once_each(void)
{
	uint32_t type = a_type();
	int fd = bound(SOCK_RDM, range(type, 0, 10)), from = a_socket(SOCK_RDM);
	Address more[] = {range(type, 5, 15), service(type, 7), scoped(service(type, 8), TIPC_NODE_SCOPE)};
	for (size_t i = 0; i < COUNT(more); i++)
		OK(bind(fd, ADDR(more[i]), sizeof more[i]));
	EQ(sent_to(from, "once", 4, range(type, 0, 100)), 4);
	EQ(receive(fd, 0)->length, 4);
	IS(quiet(fd));
	/* The sender is included. */
	EQ(sent_to(fd, "own", 3, range(type, 0, 100)), 3);
	EQ(receive(fd, 0)->length, 3);
	IS(quiet(fd));
}

static void multicast_sizes(void)
{
	static uint8_t data[70000];
	Address whole = range(a_type(), 1, 5);
	int one = bound(SOCK_RDM, service(whole.addr.nameseq.type, 1)), two = bound(SOCK_RDM, service(whole.addr.nameseq.type, 5));
	int from = a_socket(SOCK_RDM);
	fill(data, sizeof data, 4);
	ERR(sent_to(from, data, 66001, whole), EMSGSIZE);
	EQ(sent_to(from, data, 66000, whole), 66000);
	EQ(receive(one, 0)->length, 66000);
	const struct message *m = receive(two, 0);
	EQ(m->length, 66000);
	IS(filled(m->data, 66000, 4));
}

static void multicast_methods(void)
{
	Address whole = range(a_type(), 1, 5);
	int to = bound(SOCK_RDM, service(whole.addr.nameseq.type, 1)), from = a_socket(SOCK_RDM);
	static const int methods[] = {TIPC_MCAST_BROADCAST, TIPC_MCAST_REPLICAST};
	uint32_t value = 1;
	for (size_t i = 0; i < COUNT(methods); i++) {
		OK(setsockopt(from, SOL_TIPC, methods[i], NULL, 0));
		ERR(setsockopt(from, SOL_TIPC, methods[i], &value, sizeof value), EINVAL);
		ERR(setsockopt(from, SOL_TIPC, methods[i], &value, 0), EINVAL);
		EQ(sent_to(from, "x", 1, whole), 1);
		EQ(receive(to, 0)->length, 1);
	}
}

static void order(void)
{
	Address name = service(a_type(), 1);
	int to = bound(SOCK_RDM, name), from = a_socket(SOCK_RDM);
	for (uint32_t i = 0; i < 500; i++)
		EQ(sent_to(from, &i, sizeof i, name), sizeof i);
	for (uint32_t i = 0; i < 500; i++) {
		uint32_t got;
		EQ(recv(to, &got, sizeof got, 0), sizeof got);
		EQ(got, i);
	}
}

static void returned_without_control_buffer(void)
{
	int gone = a_socket(SOCK_RDM), fd = a_socket(SOCK_RDM);
	Address dead = own_address(gone);
	char byte;
	close(gone);
	set_option(fd, TIPC_DEST_DROPPABLE, 0);
	EQ(sent_to(fd, "lost", 4, dead), 4);
	EQ(recv(fd, &byte, 1, 0), 0);
	ERR(recv(fd, &byte, 1, MSG_DONTWAIT), EAGAIN);
}

static void control_buffer_too_small(void)
{
	int gone = a_socket(SOCK_RDM), fd = a_socket(SOCK_RDM);
	Address dead = own_address(gone);
	close(gone);
	set_option(fd, TIPC_DEST_DROPPABLE, 0);
	EQ(sent_to(fd, "lost", 4, dead), 4);
	union {
		char space[CMSG_SPACE(8)];
		struct cmsghdr align;
	} control;
	char byte;
	struct iovec part = {&byte, 1};
	struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
	EQ(recvmsg(fd, &head, 0), 0);
	IS(head.msg_flags & MSG_CTRUNC);
	EQ(head.msg_controllen, CMSG_SPACE(8));
	EQ(CMSG_FIRSTHDR(&head)->cmsg_type, TIPC_ERRINFO);
}

static void source_address_on_request(void)
{
	Address name = service(a_type(), 1), from;
	int to = bound(SOCK_RDM, name), fd = a_socket(SOCK_RDM);
	char byte;
	for (int i = 0; i < 3; i++)
		EQ(sent_to(fd, "x", 1, name), 1);
	EQ(recvfrom(to, &byte, 1, 0, NULL, NULL), 1);
	memset(&from, 0x55, sizeof from);
	socklen_t length = 8;
	EQ(recvfrom(to, &byte, 1, 0, ADDR(from), &length), 1);
	EQ(length, sizeof from);
	EQ(from.family, AF_TIPC);
	EQ(((uint8_t *)&from)[8], 0x55);
	length = 100;
	EQ(recvfrom(to, &byte, 1, 0, ADDR(from), &length), 1);
	EQ(length, sizeof from);
}

const struct test_case message_cases[] = {
	{"message/by-name-and-port", "8.10", by_name_and_port, false},
	{"message/across-types", "8.1", across_types, false},
	{"message/to-a-connection-socket", "8.4", to_a_connection_socket, false},
	{"message/unbound-destination", "2.5, 8.8", unbound_destination, false},
	{"message/refused", "8.1", refused, false},
	{"message/order", "8.1", order, false},
	{"message/returned-without-control-buffer", "8.10", returned_without_control_buffer, false},
	{"message/control-buffer-too-small", "recvmsg(2)", control_buffer_too_small, false},
	{"message/source-address-on-request", "8.10", source_address_on_request, false},
	{"multicast/overlapping-ranges", "7.7", multicast, false},
	{"multicast/once-each", "7.7", multicast_once_each, false},
	{"multicast/sizes", "7.7", multicast_sizes, false},
	{"multicast/methods", "8.9", multicast_methods, false},
	{NULL, NULL, NULL, false},
};

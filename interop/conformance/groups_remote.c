/* Communication groups with a member on another node, on which `conformance --serve TYPE` runs. */
#include "groups.h"

/* A member with events, and one of instance 2 on the other node, whose address is stored. */
static int with_the_other_node(uint32_t type, Address *there)
{
	char command[64];
	int fd = member(type, 1, EVENTS);
	snprintf(command, sizeof command, "group %u 2", type);
	EQ(strcmp(ask(command), "ok"), 0);
	*there = event_of(fd, type, TIPC_PUBLISHED, 2);
	IS(there->addr.id.node != own_address(fd).addr.id.node);
	return fd;
}

/* The other node's member has returned a message. */
static void returned(int fd, Address there, const uint8_t *data, size_t length)
{
	arrives(fd);
	const struct message *m = receive(fd, 0);
	EQ(m->length, length);
	SAME(m->data, data, length);
	SAME(&m->from, &there, sizeof there);
	EQ(m->from_length, PAIR);
	EQ(m->member.addr.name.name.instance, 2);
}

static void say_bye(int fd, uint32_t type)
{
	EQ(send(fd, "bye", 3, 0), 3);
	event_of(fd, type, TIPC_WITHDRAWN, 2);
	ERR(send(fd, "x", 1, 0), EHOSTUNREACH);
}

static void remote_kinds(void)
{
	static uint8_t data[66000];
	static const size_t sizes[] = {1, 1000, 1460, 9000, 66000};
	uint32_t type = a_type();
	Address there;
	int fd = with_the_other_node(type, &there), near = member(type, 3, 0);
	joined(fd, type, 3);
	for (size_t i = 0; i < COUNT(sizes); i++) {
		fill(data, sizes[i], (unsigned)i);
		EQ(send(fd, data, sizes[i], 0), sizes[i]);
		returned(fd, there, data, sizes[i]);
		arrives(near);
		EQ(receive(near, 0)->length, sizes[i]);
		EQ(sent_to(fd, data, sizes[i], there), sizes[i]);
		returned(fd, there, data, sizes[i]);
		EQ(sent_to(fd, data, sizes[i], service(type, 2)), sizes[i]);
		returned(fd, there, data, sizes[i]);
		EQ(sent_to(fd, data, sizes[i], range(type, 2, 2)), sizes[i]);
		returned(fd, there, data, sizes[i]);
	}
	IS(quiet(near));
	/* A multicast to two members, one of them on the other node. */
	int also = member(type, 2, 0);
	joined(fd, type, 2);
	EQ(sent_to(fd, "both", 4, range(type, 2, 2)), 4);
	message_from(also, "both", fd, type, 1);
	returned(fd, there, (const uint8_t *)"both", 4);
	IS(quiet(near));
	close(near);
	event_of(fd, type, TIPC_WITHDRAWN, 3);
	close(also);
	event_of(fd, type, TIPC_WITHDRAWN, 2);
	say_bye(fd, type);
}

/* Broadcasts of the other node come in order, none missing, although this member reads slowly at first. */
static void remote_broadcasts(void)
{
	static const char request[] = "all 300 5000";
	uint32_t type = a_type();
	Address there;
	int fd = with_the_other_node(type, &there);
	EQ(send(fd, request, sizeof request, 0), sizeof request);
	nap(500);
	for (uint32_t i = 0; i < 300; i++) {
		uint32_t number;
		arrives(fd);
		const struct message *m = receive(fd, 0);
		EQ(m->length, 5000);
		memcpy(&number, m->data, sizeof number);
		EQ(number, i);
		EQ(m->data[4999], (uint8_t)(i + 4999 * 7 + (4999 >> 8) * 13));
	}
	say_bye(fd, type);
}

/* This member's messages too arrive in order, over all kinds: the other node returns each. */
static void remote_order(void)
{
	static uint8_t data[4000];
	uint32_t type = a_type(), read = 0;
	Address there;
	int fd = with_the_other_node(type, &there);
	for (uint32_t i = 0; i < 400; i++) {
		memcpy(data, &i, sizeof i);
		long n = 0;
		switch (i % 5) {
		case 0: n = sent_to(fd, data, sizeof data, there); break;
		case 1: n = sent_to(fd, data, sizeof data, service(type, 2)); break;
		case 2: n = sent_to(fd, data, sizeof data, range(type, 2, 2)); break;
		default: n = send(fd, data, sizeof data, 0);
		}
		EQ(n, sizeof data);
		/* Up to 20 messages are on their way. */
		for (; read < i && (read + 20 < i || i == 399); read++) {
			uint32_t number;
			arrives(fd);
			memcpy(&number, receive(fd, 0)->data, sizeof number);
			EQ(number, read);
		}
	}
	arrives(fd);
	OK(receive(fd, 0)->length);
	say_bye(fd, type);
}

static void node_lost(void)
{
	if (!lose_command || !restore_command)
		fail(__FILE__, __LINE__, "give --lose and --restore: this case takes the link down");
	uint32_t type = a_type();
	Address there;
	int fd = with_the_other_node(type, &there), near = member(type, 3, 0);
	joined(fd, type, 3);
	EQ(system(lose_command), 0);
	Address gone = event_of(fd, type, TIPC_WITHDRAWN, 2);
	EQ(gone.addr.id.ref, there.addr.id.ref);
	ERR(sent_to(fd, "x", 1, there), EHOSTUNREACH);
	ERR(sent_to(fd, "x", 1, service(type, 2)), EHOSTUNREACH);
	EQ(send(fd, "still", 5, 0), 5);
	message_from(near, "still", fd, type, 1);
	EQ(system(restore_command), 0);
	IS(events_of(fd, POLLIN, 20000) & POLLIN);
	joined(fd, type, 2);
	EQ(send(fd, "again", 5, 0), 5);
	returned(fd, there, (const uint8_t *)"again", 5);
	close(near);
	event_of(fd, type, TIPC_WITHDRAWN, 3);
	say_bye(fd, type);
}

const struct test_case group_remote_cases[] = {
	{"group-remote/kinds", "9.5", remote_kinds, true},
	{"group-remote/broadcasts", "9.6", remote_broadcasts, true},
	{"group-remote/order", "9.6", remote_order, true},
	{"group-remote/node-lost", "9.7", node_lost, true},
	{NULL, NULL, NULL, false},
};

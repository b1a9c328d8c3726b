/* Communication groups: joining and leaving, events of members, four kinds of messages, flow control, errors. */
#include "groups.h"
#include "topology.h"

#include <signal.h>

enum { LOOPBACK = TIPC_GROUP_LOOPBACK };

static struct tipc_group_req request_of(uint32_t type, uint32_t instance, uint32_t flags)
{
	return (struct tipc_group_req){.type = type, .instance = instance, .scope = TIPC_CLUSTER_SCOPE, .flags = flags};
}

static int try_join(int fd, struct tipc_group_req request)
{
	return setsockopt(fd, SOL_TIPC, TIPC_GROUP_JOIN, &request, sizeof request);
}

static int try_leave(int fd)
{
	return setsockopt(fd, SOL_TIPC, TIPC_GROUP_LEAVE, NULL, 0);
}

int member(uint32_t type, uint32_t instance, uint32_t flags)
{
	int fd = a_socket(SOCK_RDM);
	OK(try_join(fd, request_of(type, instance, flags)));
	return fd;
}

Address event_of(int fd, uint32_t type, uint32_t event, uint32_t instance)
{
	arrives(fd);
	const struct message *m = receive(fd, 0);
	EQ(m->length, 0);
	EQ(m->flags, event == TIPC_WITHDRAWN ? MSG_OOB | MSG_EOR : MSG_OOB);
	EQ(m->from_length, PAIR);
	Address expected = port(m->from.addr.id.ref, m->from.addr.id.node), named = scoped(service(type, instance), 0);
	SAME(&m->from, &expected, sizeof expected);
	SAME(&m->member, &named, sizeof named);
	struct tipc_event e = {.event = event, .found_lower = instance, .found_upper = instance, .port = m->from.addr.id};
	e.s.seq = (struct tipc_service_range){.type = type, .lower = instance, .upper = instance};
	SAME(m->data, &e, sizeof e);
	return expected;
}

void joined(int fd, uint32_t type, uint32_t instance)
{
	event_of(fd, type, TIPC_PUBLISHED, instance);
}

void message_from(int fd, const char *text, int sender, uint32_t type, uint32_t instance)
{
	arrives(fd);
	const struct message *m = receive(fd, 0);
	EQ(m->length, strlen(text));
	SAME(m->data, text, strlen(text));
	EQ(m->flags, 0);
	EQ(m->from_length, PAIR);
	Address from = own_address(sender), named = scoped(service(type, instance), 0);
	from.scope = 0;
	SAME(&m->from, &from, sizeof from);
	SAME(&m->member, &named, sizeof named);
	IS(!m->has_name && !m->has_error);
}

static void no_group(void)
{
	static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_RDM, SOCK_DGRAM};
	for (size_t i = 0; i < COUNT(types); i++)
		EQ(get_option(a_socket(types[i]), TIPC_GROUP_JOIN), 0);
}

static void leave_without_group(void)
{
	uint32_t value = 1;
	ERR(try_leave(a_socket(SOCK_RDM)), EINVAL);
	ERR(setsockopt(a_socket(SOCK_RDM), SOL_TIPC, TIPC_GROUP_LEAVE, &value, sizeof value), EINVAL);
	ERR(setsockopt(member(a_type(), 1, 0), SOL_TIPC, TIPC_GROUP_LEAVE, &value, sizeof value), EINVAL);
}

static void refused_requests(void)
{
	int fd = a_socket(SOCK_RDM);
	struct tipc_group_req request = request_of(63, 1, 0);
	ERR(try_join(fd, request), EACCES);
	request.type = a_type();
	request.scope = 4;
	ERR(try_join(fd, request), EINVAL);
	request.scope = TIPC_CLUSTER_SCOPE;
	ERR(setsockopt(fd, SOL_TIPC, TIPC_GROUP_JOIN, &request, sizeof request - 1), EINVAL);
	ERR(setsockopt(fd, SOL_TIPC, TIPC_GROUP_JOIN, NULL, sizeof request), EFAULT);
	EQ(get_option(fd, TIPC_GROUP_JOIN), 0);
}

static void scopes(void)
{
	for (uint32_t scope = 0; scope <= TIPC_NODE_SCOPE; scope++) {
		struct tipc_group_req request = request_of(a_type(), scope, 0x80);
		request.scope = scope;
		uint8_t longer[sizeof request + 8] = {0};
		memcpy(longer, &request, sizeof request);
		int fd = a_socket(scope % 2 ? SOCK_DGRAM : SOCK_RDM);
		OK(setsockopt(fd, SOL_TIPC, TIPC_GROUP_JOIN, longer, sizeof longer));
		EQ(get_option(fd, TIPC_GROUP_JOIN), request.type);
	}
}

/* A connection that follows the members of a group, opened before the first one joins. The server of Linux is a
 * separate thread: a member that leaves before it has read the subscription is never reported. It answers in order, so
 * the event of its own binding follows the subscription. */
static int follower(uint32_t type)
{
	int fd = topology_connection(0);
	subscribe(fd, subscription(type, 0, ~0u, NEVER, TIPC_SUB_PORTS, ""));
	subscribe(fd, subscription(TIPC_TOP_SRV, TIPC_TOP_SRV, TIPC_TOP_SRV, NEVER, TIPC_SUB_PORTS, ""));
	EQ(event_from(fd).s.seq.type, TIPC_TOP_SRV);
	return fd;
}

/* Waits until the members know that the binding of `instance` is gone. Linux tells those that subscribed last first,
 * and takes a member that joins again too early for the one that left: it stays unknown to the others. */
static void withdrawn(int follower, uint32_t instance)
{
	struct tipc_event e;
	do
		e = event_from(follower);
	while (e.event != TIPC_WITHDRAWN || e.found_lower != instance);
}

static void join_leave_join(void)
{
	uint32_t type = a_type(), other = a_type();
	int following = follower(other);
	int fd = member(type, 7, 0);
	EQ(get_option(fd, TIPC_GROUP_JOIN), type);
	ERR(try_join(fd, request_of(other, 7, 0)), EACCES);
	OK(try_leave(fd));
	EQ(get_option(fd, TIPC_GROUP_JOIN), 0);
	ERR(try_leave(fd), EINVAL);
	int watcher = member(other, 1, EVENTS);
	for (int i = 0; i < 3; i++) {
		OK(try_join(fd, request_of(other, 8, 0)));
		joined(watcher, other, 8);
		EQ(sendto(watcher, "again", 5, 0, NULL, 0), 5);
		message_from(fd, "again", watcher, other, 1);
		OK(try_leave(fd));
		event_of(watcher, other, TIPC_WITHDRAWN, 8);
		withdrawn(following, 8);
	}
}

static void option_value_sizes(void)
{
	uint32_t type = a_type(), values[2] = {1, 2};
	int fd = member(type, 7, 0);
	socklen_t length = 3;
	ERR(getsockopt(fd, SOL_TIPC, TIPC_GROUP_JOIN, values, &length), EINVAL);
	length = sizeof values;
	OK(getsockopt(fd, SOL_TIPC, TIPC_GROUP_JOIN, values, &length));
	EQ(length, 4);
	EQ(values[0], type);
	EQ(values[1], 2);
	length = sizeof values;
	ERR(getsockopt(fd, SOL_TIPC, TIPC_GROUP_LEAVE, values, &length), EINVAL);
}

static void a_member_neither_binds_nor_connects(void)
{
	uint32_t type = a_type();
	int fd = member(type, 7, 0);
	Address name = service(a_type(), 1);
	ERR(bind(fd, ADDR(name), sizeof name), EACCES);
	ERR(connect(fd, ADDR(name), sizeof name), EINVAL);
	EQ(get_option(fd, TIPC_GROUP_JOIN), type);
	/* A binding of a type from before stays. */
	int both = bound(SOCK_RDM, name);
	OK(try_join(both, request_of(type, 8, 0)));
	OK(try_leave(both));
	EQ(sent_to(a_socket(SOCK_RDM), "x", 1, name), 1);
	arrives(both);
}

/* Linux lets connection-oriented sockets join, send, and not receive. */
static void connection_oriented(void)
{
	int fd = a_socket(SOCK_SEQPACKET);
	int done = try_join(fd, request_of(a_type(), 7, 0)), code = errno;
	EQ(done, DIFFERS("9", 0, -1));
	if (done < 0)
		EQ(code, ENOPROTOOPT);
}

static void events_of_members(void)
{
	uint32_t type = a_type();
	int first = member(type, 1, EVENTS), silent = member(type, 2, 0);
	Address at = event_of(first, type, TIPC_PUBLISHED, 2);
	EQ(at.addr.id.ref, own_address(silent).addr.id.ref);
	EQ(at.addr.id.node, own_address(silent).addr.id.node);
	int third = member(type, 3, EVENTS);
	joined(first, type, 3);
	/* Members from before are reported too, in any order. */
	uint32_t seen = 0;
	for (int i = 0; i < 2; i++) {
		arrives(third);
		const struct message *m = receive(third, 0);
		EQ(m->flags, MSG_OOB);
		seen |= 1u << m->member.addr.name.name.instance;
	}
	EQ(seen, 1 << 1 | 1 << 2);
	close(third);
	event_of(first, type, TIPC_WITHDRAWN, 3);
	OK(try_leave(silent));
	event_of(first, type, TIPC_WITHDRAWN, 2);
	IS(quiet(silent));
	IS(quiet(first));
}

static void rejoin_with_another_instance(void)
{
	uint32_t type = a_type();
	int following = follower(type), watcher = member(type, 1, EVENTS), fd = member(type, 2, 0);
	joined(watcher, type, 2);
	OK(try_leave(fd));
	if (engine == UTIPC) {
		/* At once. */
		OK(try_join(fd, request_of(type, 3, 0)));
		event_of(watcher, type, TIPC_WITHDRAWN, 2);
	} else {
		event_of(watcher, type, TIPC_WITHDRAWN, 2);
		withdrawn(following, 2);
		OK(try_join(fd, request_of(type, 3, 0)));
	}
	joined(watcher, type, 3);
}

static void short_event(void)
{
	uint32_t type = a_type();
	int watcher = member(type, 1, EVENTS);
	for (uint32_t i = 0; i < 5; i++) {
		int fd = member(type, 10 + i, 0);
		arrives(watcher);
		struct tipc_event e = {0};
		uint8_t head[8], rest[sizeof e - 8 + 4];
		struct iovec parts[] = {{.iov_base = head, .iov_len = sizeof head}, {.iov_base = rest, .iov_len = sizeof rest}};
		struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
		if (i == 0) {
			m.msg_iovlen = 1;
			EQ(recvmsg(watcher, &m, 0), 0);
			EQ(m.msg_flags, MSG_OOB | MSG_TRUNC);
			memcpy(&e, head, sizeof head);
			EQ(e.event, TIPC_PUBLISHED);
			EQ(e.found_lower, 10);
		} else if (i == 1) {
			EQ(recvmsg(watcher, &m, MSG_PEEK), 0);
			EQ(m.msg_flags, MSG_OOB);
			EQ(recvmsg(watcher, &m, 0), 0);
			EQ(m.msg_flags, MSG_OOB);
			memcpy(&e, head, sizeof head);
			memcpy((uint8_t *)&e + sizeof head, rest, sizeof e - sizeof head);
			EQ(e.found_lower, 11);
			EQ(e.s.seq.upper, 11);
			IS(quiet(watcher));
		} else if (i == 2) {
			EQ(read(watcher, &e, sizeof e), 0);
			EQ(e.found_lower, 12);
		} else if (i == 3) {
			EQ(recv(watcher, &e, sizeof e, MSG_PEEK), 0);
			EQ(recv(watcher, &e, sizeof e, 0), 0);
			EQ(e.found_lower, 13);
		} else {
			ERR(recv(watcher, &e, 0, 0), EINVAL);
			EQ(recv(watcher, &e, sizeof e, MSG_EOR), 0);
		}
		close(fd);
		event_of(watcher, type, TIPC_WITHDRAWN, 10 + i);
	}
}

/* A sender, the member 1, and three others, whose instances are 2, 3 and 3. All know each other. */
struct four {
	uint32_t type;
	int sender, two, three, also_three;
};

static struct four four_members(uint32_t flags)
{
	struct four g = {.type = a_type()};
	g.two = member(g.type, 2, 0);
	g.three = member(g.type, 3, 0);
	g.also_three = member(g.type, 3, 0);
	g.sender = member(g.type, 1, EVENTS | flags);
	for (int i = 0; i < (flags & LOOPBACK ? 4 : 3); i++) {
		arrives(g.sender);
		EQ(receive(g.sender, 0)->flags, MSG_OOB);
	}
	return g;
}

static void broadcast(void)
{
	struct four g = four_members(0);
	int all[] = {g.two, g.three, g.also_three};
	EQ(sendto(g.sender, "one", 3, 0, NULL, 0), 3);
	EQ(send(g.sender, "two", 3, 0), 3);
	EQ(write(g.sender, "three", 5), 5);
	struct iovec part = {.iov_base = "four", .iov_len = 4};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
	EQ(sendmsg(g.sender, &m, 0), 4);
	for (size_t i = 0; i < COUNT(all); i++) {
		message_from(all[i], "one", g.sender, g.type, 1);
		message_from(all[i], "two", g.sender, g.type, 1);
		message_from(all[i], "three", g.sender, g.type, 1);
		message_from(all[i], "four", g.sender, g.type, 1);
	}
	IS(quiet(g.sender));
}

static void unicast(void)
{
	struct four g = four_members(0);
	Address to = own_address(g.three);
	EQ(sent_to(g.sender, "you", 3, to), 3);
	message_from(g.three, "you", g.sender, g.type, 1);
	IS(quiet(g.two) && quiet(g.three) && quiet(g.also_three));
}

static void anycast(void)
{
	struct four g = four_members(0);
	/* The group's type counts, whatever type and domain the address has. */
	EQ(sent_to(g.sender, "any", 3, service(g.type, 2)), 3);
	EQ(sent_to(g.sender, "any", 3, service(a_type(), 2)), 3);
	message_from(g.two, "any", g.sender, g.type, 1);
	message_from(g.two, "any", g.sender, g.type, 1);
	for (int i = 0; i < 4; i++)
		EQ(sent_to(g.sender, "3", 1, service(g.type, 3)), 1);
	for (int i = 0; i < 2; i++) {
		message_from(g.three, "3", g.sender, g.type, 1);
		message_from(g.also_three, "3", g.sender, g.type, 1);
	}
	IS(quiet(g.two) && quiet(g.three) && quiet(g.also_three));
}

static void multicast(void)
{
	struct four g = four_members(0);
	/* The lower end of the range is the instance; the type does not matter. */
	EQ(sent_to(g.sender, "all 3", 5, range(g.type, 3, 3)), 5);
	EQ(sent_to(g.sender, "all 3", 5, range(g.type + 1, 3, 9)), 5);
	EQ(sent_to(g.sender, "one 2", 5, range(g.type, 2, 3)), 5);
	for (int i = 0; i < 2; i++) {
		message_from(g.three, "all 3", g.sender, g.type, 1);
		message_from(g.also_three, "all 3", g.sender, g.type, 1);
	}
	message_from(g.two, "one 2", g.sender, g.type, 1);
	IS(quiet(g.two) && quiet(g.three) && quiet(g.also_three) && quiet(g.sender));
}

static void loopback(void)
{
	struct four g = four_members(LOOPBACK);
	EQ(send(g.sender, "all", 3, 0), 3);
	EQ(sent_to(g.sender, "any", 3, service(g.type, 1)), 3);
	EQ(sent_to(g.sender, "many", 4, range(g.type, 1, 1)), 4);
	EQ(sent_to(g.sender, "self", 4, own_address(g.sender)), 4);
	message_from(g.sender, "all", g.sender, g.type, 1);
	message_from(g.sender, "any", g.sender, g.type, 1);
	message_from(g.sender, "many", g.sender, g.type, 1);
	message_from(g.sender, "self", g.sender, g.type, 1);
	message_from(g.two, "all", g.sender, g.type, 1);
	IS(quiet(g.two));
	OK(try_leave(g.sender));
	IS(quiet(g.sender));
}

/* A message without an address goes to the group, also if the socket was connected before. */
static void default_destination(void)
{
	uint32_t type = a_type();
	int fd = a_socket(SOCK_RDM), outside = a_socket(SOCK_RDM);
	Address to = own_address(outside);
	OK(connect(fd, ADDR(to), sizeof to));
	EQ(send(fd, "before", 6, 0), 6);
	arrives(outside);
	OK(try_join(fd, request_of(type, 1, EVENTS)));
	int other = member(type, 2, 0);
	joined(fd, type, 2);
	EQ(send(fd, "all", 3, 0), 3);
	message_from(other, "all", fd, type, 1);
	EQ(receive(outside, 0)->length, 6);
	IS(quiet(outside));
}

static void no_receiver(void)
{
	uint32_t type = a_type();
	int fd = member(type, 1, EVENTS), outside = a_socket(SOCK_RDM);
	ERR(send(fd, "x", 1, 0), EHOSTUNREACH);
	ERR(sent_to(fd, "x", 1, own_address(fd)), EHOSTUNREACH);
	int two = member(type, 2, 0);
	joined(fd, type, 2);
	ERR(sent_to(fd, "x", 1, own_address(outside)), EHOSTUNREACH);
	ERR(sent_to(fd, "x", 1, service(type, 1)), EHOSTUNREACH);
	ERR(sent_to(fd, "x", 1, service(type, 9)), EHOSTUNREACH);
	ERR(sent_to(fd, "x", 1, range(type, 9, 9)), EHOSTUNREACH);
	ERR(sent_to(fd, "x", 1, range(type, 1, 2)), EHOSTUNREACH);
	close(two);
	event_of(fd, type, TIPC_WITHDRAWN, 2);
	ERR(send(fd, "x", 1, 0), EHOSTUNREACH);
}

static void refused_messages(void)
{
	static uint8_t data[66001];
	struct four g = four_members(0);
	ERR(send(g.sender, data, sizeof data, 0), EMSGSIZE);
	Address bad = range(g.type, 3, 2), two = service(g.type, 2);
	ERR(sent_to(g.sender, "x", 1, bad), EINVAL);
	bad.addrtype = 4;
	ERR(sent_to(g.sender, "x", 1, bad), EINVAL);
	bad = two;
	bad.family = AF_INET;
	ERR(sent_to(g.sender, "x", 1, bad), EINVAL);
	ERR(sendto(g.sender, "x", 1, 0, ADDR(two), sizeof two - 1), EINVAL);
	EQ(send(g.sender, data, 66000, 0), 66000);
	arrives(g.two);
	EQ(receive(g.two, 0)->length, 66000);
}

/* An empty message is accepted and not delivered. */
static void empty_messages(void)
{
	struct four g = four_members(0);
	EQ(send(g.sender, "", 0, 0), 0);
	EQ(sent_to(g.sender, "", 0, service(g.type, 2)), 0);
	EQ(sent_to(g.sender, "", 0, own_address(g.two)), 0);
	EQ(sent_to(g.sender, "", 0, range(g.type, 3, 3)), 0);
	EQ(send(g.sender, "x", 1, 0), 1);
	message_from(g.two, "x", g.sender, g.type, 1);
	message_from(g.three, "x", g.sender, g.type, 1);
}

static void order_over_all_kinds(void)
{
	struct four g = four_members(0);
	Address to = own_address(g.two);
	for (int i = 0; i < 40; i++) {
		char text[8];
		snprintf(text, sizeof text, "%d", i);
		size_t length = strlen(text);
		switch (i % 4) {
		case 0: EQ(send(g.sender, text, length, 0), length); break;
		case 1: EQ(sent_to(g.sender, text, length, to), length); break;
		case 2: EQ(sent_to(g.sender, text, length, service(g.type, 2)), length); break;
		default: EQ(sent_to(g.sender, text, length, range(g.type, 2, 2)), length);
		}
		message_from(g.two, text, g.sender, g.type, 1);
		if (i % 4 == 0) {
			message_from(g.three, text, g.sender, g.type, 1);
			message_from(g.also_three, text, g.sender, g.type, 1);
		}
	}
}

static void addresses_of_a_message(void)
{
	uint32_t type = a_type();
	int sender = member(type, 1, EVENTS), receiver = member(type, 2, 0);
	joined(sender, type, 2);
	for (int i = 0; i < 4; i++)
		EQ(send(sender, "x", 1, 0), 1);
	Address room[3];
	char byte;
	static const socklen_t sizes[] = {sizeof room, PAIR, sizeof(Address), 8};
	for (size_t i = 0; i < COUNT(sizes); i++) {
		arrives(receiver);
		memset(room, 0xee, sizeof room);
		socklen_t length = sizes[i];
		EQ(recvfrom(receiver, &byte, 1, 0, ADDR(room[0]), &length), 1);
		EQ(length, PAIR);
		EQ(room[0].family, AF_TIPC);
		if (sizes[i] >= PAIR) {
			EQ(room[1].family, AF_TIPC);
			EQ(room[1].addrtype, TIPC_SERVICE_ADDR);
			EQ(room[1].addr.name.name.type, type);
			EQ(room[1].addr.name.name.instance, 1);
			EQ(room[1].addr.name.domain, 0);
		} else {
			EQ(room[1].family, 0xeeee);
		}
		EQ(room[2].family, 0xeeee);
	}
}

static void sockets_outside_are_not_heard(void)
{
	uint32_t type = a_type();
	int fd = member(type, 1, EVENTS), outside = a_socket(SOCK_RDM);
	EQ(sent_to(outside, "by port", 7, own_address(fd)), 7);
	EQ(sent_to(outside, "by name", 7, service(type, 1)), 7);
	IS(quiet(fd));
	IS(quiet(outside));
	/* After it has left, it is a socket like others. */
	OK(try_leave(fd));
	EQ(sent_to(outside, "by port", 7, own_address(fd)), 7);
	arrives(fd);
	const struct message *m = receive(fd, 0);
	EQ(m->length, 7);
	EQ(m->from_length, sizeof(Address));
}

static void groups_are_separate(void)
{
	uint32_t type = a_type();
	int cluster = member(type, 1, EVENTS), node = a_socket(SOCK_RDM);
	struct tipc_group_req request = request_of(type, 2, EVENTS);
	request.scope = TIPC_NODE_SCOPE;
	OK(try_join(node, request));
	IS(quiet(cluster) && quiet(node));
	ERR(send(node, "x", 1, 0), EHOSTUNREACH);
	int other = a_socket(SOCK_RDM);
	request.instance = 3;
	OK(try_join(other, request));
	joined(node, type, 3);
	EQ(send(node, "x", 1, 0), 1);
	joined(other, type, 2);
	message_from(other, "x", node, type, 2);
	IS(quiet(cluster));
}

static void left_with_unread_messages(void)
{
	uint32_t type = a_type();
	int sender = member(type, 1, EVENTS), receiver = member(type, 2, 0);
	joined(sender, type, 2);
	EQ(send(sender, "before", 6, 0), 6);
	arrives(receiver);
	OK(try_leave(receiver));
	event_of(sender, type, TIPC_WITHDRAWN, 2);
	message_from(receiver, "before", sender, type, 1);
}

/* Messages sent before a member left arrive before the event. */
static void messages_before_the_event(void)
{
	uint32_t type = a_type();
	int fd = member(type, 1, EVENTS), other = member(type, 2, EVENTS);
	joined(fd, type, 2);
	joined(other, type, 1);
	for (int i = 0; i < 10; i++)
		EQ(send(other, "last", 4, 0), 4);
	Address from = own_address(other);
	close(other);
	for (int i = 0; i < 10; i++) {
		arrives(fd);
		const struct message *m = receive(fd, 0);
		EQ(m->length, 4);
		EQ(m->from.addr.id.ref, from.addr.id.ref);
	}
	event_of(fd, type, TIPC_WITHDRAWN, 2);
}

static void hold_membership(int fd)
{
	char byte;
	recv(fd, &byte, 1, 0);
}

static void the_last_close_leaves(void)
{
	uint32_t type = a_type();
	int watcher = member(type, 1, EVENTS), fd = member(type, 2, 0);
	joined(watcher, type, 2);
	pid_t pid = child(hold_membership, fd);
	close(fd);
	IS(quiet(watcher));
	EQ(send(watcher, "x", 1, 0), 1);
	reap(pid);
	event_of(watcher, type, TIPC_WITHDRAWN, 2);
}

static void join_and_wait(int type)
{
	int fd = member((uint32_t)type, 2, 0);
	char byte;
	recv(fd, &byte, 1, 0);
	pause();
}

static void a_killed_member_has_left(void)
{
	uint32_t type = a_type();
	int watcher = member(type, 1, EVENTS);
	pid_t pid = child(join_and_wait, (int)type);
	joined(watcher, type, 2);
	OK(kill(pid, SIGKILL));
	event_of(watcher, type, TIPC_WITHDRAWN, 2);
	ERR(send(watcher, "x", 1, 0), EHOSTUNREACH);
}

/* A sender and a member that does not read. Returns how many messages of 10,000 bytes the member gets. */
static int full_member(int *sender, int *reader, Address *to, int how)
{
	static uint8_t data[10000];
	uint32_t type = a_type();
	*sender = member(type, 1, EVENTS);
	*reader = member(type, 2, EVENTS);
	joined(*sender, type, 2);
	joined(*reader, type, 1);
	*to = own_address(*reader);
	if (how == 1)
		*to = service(type, 2);
	if (how == 2)
		*to = range(type, 2, 2);
	blocking(*sender, false);
	for (int sent = 0; sent < 100; sent++) {
		long n = how == 3 ? send(*sender, data, sizeof data, 0) : sent_to(*sender, data, sizeof data, *to);
		if (n < 0) {
			EQ(errno, EAGAIN);
			return sent;
		}
		EQ(n, sizeof data);
	}
	return 100;
}

static void would_block(int how)
{
	static uint8_t data[10000];
	int sender, reader;
	Address to;
	int sent = full_member(&sender, &reader, &to, how);
	/* 65 blocks of 1 KiB: six messages of ten. */
	EQ(sent, 6);
	EQ(events_of(sender, POLLOUT, 0), 0);
	blocking(sender, true);
	set_timeout(sender, SO_SNDTIMEO, 200);
	long long begin = now_ms();
	ERR(how == 3 ? send(sender, data, sizeof data, 0) : sent_to(sender, data, sizeof data, to), EAGAIN);
	IS(now_ms() - begin >= 150);
	for (int i = 0; i < sent; i++) {
		arrives(reader);
		EQ(receive(reader, 0)->length, sizeof data);
	}
	IS(events_of(sender, POLLOUT, 5000) & POLLOUT);
	/* The member is active now: twelve times the window. */
	blocking(sender, false);
	for (sent = 0; sent < 200; sent++)
		if ((how == 3 ? send(sender, data, sizeof data, 0) : sent_to(sender, data, sizeof data, to)) < 0)
			break;
	EQ(errno, EAGAIN);
	IS(sent >= 70 && sent <= 78);
}

static void a_unicast_would_block(void)
{
	would_block(0);
}

static void an_anycast_would_block(void)
{
	would_block(1);
}

static void a_multicast_would_block(void)
{
	would_block(2);
}

static void a_broadcast_would_block(void)
{
	would_block(3);
}

static void polled(void)
{
	uint32_t type = a_type();
	int fd = a_socket(SOCK_RDM);
	EQ(events_of(fd, POLLIN | POLLOUT, 0), POLLOUT);
	OK(try_join(fd, request_of(type, 1, EVENTS)));
	/* Not writable until there is a member to send to. */
	EQ(events_of(fd, POLLIN | POLLOUT | POLLPRI, 0), 0);
	int other = member(type, 2, 0);
	EQ(events_of(fd, POLLIN | POLLPRI, 5000), POLLIN);
	joined(fd, type, 2);
	EQ(events_of(fd, POLLIN | POLLOUT | POLLPRI, 1000), POLLOUT);
	close(other);
	EQ(events_of(fd, POLLIN | POLLPRI, 5000), POLLIN);
}

static void multicast_methods(void)
{
	struct four g = four_members(0);
	OK(setsockopt(g.sender, SOL_TIPC, TIPC_MCAST_REPLICAST, NULL, 0));
	EQ(send(g.sender, "rep", 3, 0), 3);
	message_from(g.two, "rep", g.sender, g.type, 1);
	OK(setsockopt(g.sender, SOL_TIPC, TIPC_MCAST_BROADCAST, NULL, 0));
	EQ(send(g.sender, "bc", 2, 0), 2);
	message_from(g.two, "bc", g.sender, g.type, 1);
	EQ(get_option(g.two, TIPC_DEST_DROPPABLE), 1);
	EQ(get_option(g.two, TIPC_SOCK_RECVQ_DEPTH), 0);
}

/* A plain binding of the group's type blocks broadcasts until it is withdrawn. */
static void a_plain_binding(void)
{
	uint32_t type = a_type();
	int fd = member(type, 1, EVENTS), plain = bound(SOCK_RDM, service(type, 5));
	blocking(fd, false);
	for (int i = 0; i < 100 && send(fd, "x", 1, 0) < 0 && errno == EHOSTUNREACH; i++)
		nap(50);
	ERR(send(fd, "x", 1, 0), EAGAIN);
	ERR(sent_to(fd, "x", 1, service(type, 5)), EAGAIN);
	ERR(sent_to(fd, "x", 1, own_address(plain)), EAGAIN);
	EQ(events_of(fd, POLLIN | POLLOUT, 0), 0);
	int other = member(type, 2, 0);
	joined(fd, type, 2);
	ERR(send(fd, "x", 1, 0), EAGAIN);
	EQ(sent_to(fd, "x", 1, service(type, 2)), 1);
	message_from(other, "x", fd, type, 1);
	close(plain);
	blocking(fd, true);
	EQ(send(fd, "y", 1, 0), 1);
	message_from(other, "y", fd, type, 1);
	IS(quiet(fd));
}

const struct test_case group_cases[] = {
	{"group/no-group", "8.9", no_group, false},
	{"group/leave-without-group", "9.1", leave_without_group, false},
	{"group/refused-requests", "9.1", refused_requests, false},
	{"group/scopes", "9.1", scopes, false},
	{"group/join-leave-join", "9.1", join_leave_join, false},
	{"group/option-value-sizes", "8.9", option_value_sizes, false},
	{"group/member-neither-binds-nor-connects", "9.1", a_member_neither_binds_nor_connects, false},
	{"group/connection-oriented", "9.1", connection_oriented, false},
	{"group/events", "9.7", events_of_members, false},
	{"group/rejoin-with-another-instance", "9.7", rejoin_with_another_instance, false},
	{"group/short-event", "9.7", short_event, false},
	{"group/broadcast", "9.5", broadcast, false},
	{"group/unicast", "9.5", unicast, false},
	{"group/anycast", "9.5", anycast, false},
	{"group/multicast", "9.5", multicast, false},
	{"group/loopback", "9.8", loopback, false},
	{"group/default-destination", "9.5", default_destination, false},
	{"group/no-receiver", "9.8", no_receiver, false},
	{"group/refused-messages", "9.5", refused_messages, false},
	{"group/empty-messages", "9.5", empty_messages, false},
	{"group/order-over-all-kinds", "9.6", order_over_all_kinds, false},
	{"group/addresses", "8.10", addresses_of_a_message, false},
	{"group/sockets-outside", "9.1", sockets_outside_are_not_heard, false},
	{"group/separate-scopes", "9.1", groups_are_separate, false},
	{"group/left-with-unread-messages", "9.6", left_with_unread_messages, false},
	{"group/messages-before-the-event", "9.6", messages_before_the_event, false},
	{"group/last-close", "9.1", the_last_close_leaves, false},
	{"group/killed-member", "9.7", a_killed_member_has_left, false},
	{"group/unicast-would-block", "9.5", a_unicast_would_block, false},
	{"group/anycast-would-block", "9.5", an_anycast_would_block, false},
	{"group/multicast-would-block", "9.5", a_multicast_would_block, false},
	{"group/broadcast-would-block", "9.5", a_broadcast_would_block, false},
	{"group/poll", "8.11", polled, false},
	{"group/multicast-methods", "9.5", multicast_methods, false},
	{"group/plain-binding", "9.8", a_plain_binding, false},
	{NULL, NULL, NULL, false},
};

/* Communication groups: events, four kinds of messages, flow control, errors. */
#include "check.h"

/* Each part has its own group: members of an earlier group may still be leaving. */
static uint32_t group = 4300;

static int member(uint32_t instance, bool events)
{
	struct tipc_addr own = { .type = group, .instance = instance };
	int sd = open_socket(SOCK_RDM);

	CHECK(tipc_join(sd, &own, events, false) == 0);
	return sd;
}

/* The next thing is an event of the member `instance`; returns its socket. */
static struct tipc_addr event_of(int sd, uint32_t instance, int code)
{
	struct tipc_addr from, who;
	char buffer[100];
	int err = 7;

	CHECK(tipc_recvfrom(sd, buffer, sizeof(buffer), &from, &who, &err) == 0);
	CHECK(err == code);
	CHECK(who.type == group && who.instance == instance && who.node == 0);
	CHECK(from.type == 0 && from.instance != 0);
	return from;
}

static void message_from(int sd, const char *text, uint32_t instance)
{
	struct tipc_addr from, who;
	char buffer[100];
	int err = 7, length = (int)strlen(text);

	CHECK(tipc_recvfrom(sd, buffer, sizeof(buffer), &from, &who, &err) == length);
	CHECK(memcmp(buffer, text, strlen(text)) == 0 && err == 0);
	CHECK(who.type == group && who.instance == instance && from.type == 0);
}

static void kinds_of_messages(void)
{
	struct tipc_addr to = { .type = group, .instance = 3 }, two;
	int second = member(2, false), third = member(3, false), fourth = member(3, false), sender = member(1, true);

	for (int i = 0; i < 3; i++) {
		struct tipc_addr who;
		char buffer[100];

		CHECK(tipc_recvfrom(sender, buffer, sizeof(buffer), NULL, &who, NULL) == 0);
		CHECK(who.instance == 2 || who.instance == 3);
	}
	CHECK(tipc_send(sender, "all", 3) == 3);
	message_from(second, "all", 1);
	message_from(third, "all", 1);
	message_from(fourth, "all", 1);
	CHECK(tipc_mcast(sender, "threes", 6, &to) == 6);
	message_from(third, "threes", 1);
	message_from(fourth, "threes", 1);
	CHECK(tipc_sendto(sender, "any", 3, &to) == 3);
	CHECK(tipc_sendto(sender, "any", 3, &to) == 3);
	message_from(third, "any", 1);
	message_from(fourth, "any", 1);
	CHECK(tipc_sockaddr(second, &two) == 0);
	CHECK(tipc_sendto(sender, "you", 3, &two) == 3);
	message_from(second, "you", 1);
	CHECK(polled(third) == POLLOUT);
	CHECK(tipc_leave(second) == 0);
	event_of(sender, 2, -1);
	CHECK(tipc_close(third) == 0);
	event_of(sender, 3, -1);
	to.instance = 2;
	FAILS(tipc_sendto(sender, "none", 4, &to), EHOSTUNREACH);
	FAILS(tipc_mcast(sender, "none", 4, &to), EHOSTUNREACH);
	FAILS(tipc_sendto(sender, "none", 4, &two), EHOSTUNREACH);
	CHECK(tipc_close(fourth) == 0 && tipc_close(second) == 0 && tipc_close(sender) == 0);
}

static void full_member(void)
{
	static char data[60000];
	struct tipc_addr who;
	int sender = member(1, true), reader = member(2, false), sent = 0;

	event_of(sender, 2, 0);
	CHECK(tipc_sock_non_block(sender) == sender);
	while (tipc_send(sender, data, sizeof(data)) > 0)
		sent++;
	CHECK(errno == EAGAIN && strstr(utipc_strerror(), "member"));
	CHECK(sent > 0 && sent < 20 && polled(sender) == 0);
	for (int i = 0; i < sent; i++)
		CHECK(tipc_recvfrom(reader, data, sizeof(data), NULL, &who, NULL) == (int)sizeof(data));
	CHECK(who.instance == 1);
	CHECK(wait_for(sender, POLLOUT) & POLLOUT);
	CHECK(tipc_send(sender, data, sizeof(data)) == (int)sizeof(data));
	CHECK(tipc_close(sender) == 0 && tipc_close(reader) == 0);
}

static void loopback_and_scope(void)
{
	struct tipc_addr own = { .type = group, .instance = 5, .node = tipc_own_node() };
	int sd = open_socket(SOCK_DGRAM), cluster = member(6, true);

	CHECK(tipc_join(sd, &own, true, true) == 0);
	event_of(sd, 5, 0);
	CHECK(tipc_send(sd, "self", 4) == 4);
	message_from(sd, "self", 5);
	FAILS(tipc_send(cluster, "x", 1), EHOSTUNREACH);
	CHECK(polled(cluster) == 0);
	CHECK(tipc_close(sd) == 0 && tipc_close(cluster) == 0);
}

static void refused(void)
{
	struct tipc_addr own = { .type = 63, .instance = 1 };
	int sd = open_socket(SOCK_RDM), stream = open_socket(SOCK_STREAM);

	FAILS(tipc_leave(sd), EINVAL);
	CHECK(strstr(utipc_strerror(), "group"));
	FAILS(tipc_join(sd, NULL, true, true), EFAULT);
	FAILS(tipc_join(sd, &own, true, true), EACCES);
	own.type = group;
	own.node = 0xdeadbeef;
	FAILS(tipc_join(sd, &own, true, true), EINVAL);
	own.node = 0;
	FAILS(tipc_join(stream, &own, true, true), ENOPROTOOPT);
	CHECK(tipc_join(sd, &own, true, false) == 0);
	FAILS(tipc_join(sd, &own, true, false), EACCES);
	FAILS(tipc_bind(sd, group + 1, 1, 1, 0), EACCES);
	FAILS(tipc_connect(sd, &own), EINVAL);
	FAILS(tipc_send(sd, "x", 1), EHOSTUNREACH);
	CHECK(tipc_leave(sd) == 0);
	CHECK(tipc_bind(sd, group + 1, 1, 1, 0) == 0);
	CHECK(tipc_close(sd) == 0 && tipc_close(stream) == 0);
}

int main(void)
{
	refused();
	group += 10;
	kinds_of_messages();
	group += 10;
	full_member();
	group += 10;
	loopback_and_scope();
	puts("ok");
	return 0;
}

/* Properties of subscriptions: byte order, expiry, cancelling, errors. */
#include "topology.h"

static void other_byte_order(void)
{
	uint32_t type = a_type();
	turned = true;
	int fd = topology_connection(0), to = bound(SOCK_RDM, service(type, 5));
	struct tipc_subscr asked = subscription(type, 0, 10, NEVER, TIPC_SUB_SERVICE, "unturned");
	subscribe(fd, asked);
	struct tipc_event e = event_from(fd);
	EQ(e.event, TIPC_PUBLISHED);
	EQ(e.found_lower, 5);
	Address own = own_address(to);
	EQ(e.port.ref, own.addr.id.ref);
	EQ(e.port.node, own.addr.id.node);
	SAME(&e.s, &asked, sizeof asked);
	close(to);
	EQ(event_from(fd).event, TIPC_WITHDRAWN);
	subscribe(fd, subscription(type, 20, 21, 100, TIPC_SUB_PORTS, ""));
	e = event_from(fd);
	EQ(e.event, TIPC_SUBSCR_TIMEOUT);
	EQ(e.s.seq.lower, 20);
	/* The kernel swaps these two once too often (row 10.1). */
	EQ(e.found_lower, DIFFERS("10.1", 0x14000000, 20));
	EQ(e.found_upper, DIFFERS("10.1", 0x15000000, 21));
	/* Each subscription has its own byte order. */
	turned = false;
	to = bound(SOCK_RDM, service(type, 30));
	subscribe(fd, subscription(type, 30, 30, NEVER, TIPC_SUB_PORTS, ""));
	expect_event(fd, TIPC_PUBLISHED, 30, 30, to);
}

static void filter_zero(void)
{
	/* The filter requests no event in either byte order: it is read as swapped, and the subscription never
	 * reports anything. */
	uint32_t type = a_type();
	int fd = topology_connection(0);
	subscribe(fd, subscription(type, 0, 10, NEVER, 0, ""));
	bound(SOCK_RDM, service(type, 5));
	IS(quiet(fd));
}

static void times_out(void)
{
	uint32_t type = a_type();
	int fd = topology_connection(0), one = bound(SOCK_RDM, service(type, 1));
	long long began = now_ms();
	subscribe(fd, subscription(type, 0, 10, 300, TIPC_SUB_PORTS, "waits"));
	expect_event(fd, TIPC_PUBLISHED, 1, 1, one);
	struct tipc_event e = event_from(fd);
	EQ(e.event, TIPC_SUBSCR_TIMEOUT);
	IS(now_ms() - began >= 250);
	EQ(e.found_lower, 0);
	EQ(e.found_upper, 10);
	EQ(e.port.ref, 0);
	EQ(e.port.node, 0);
	EQ(e.s.timeout, 300);
	SAME(e.s.usr_handle, "waits", 6);
	/* The subscription has ended, the connection has not. */
	bound(SOCK_RDM, service(type, 2));
	IS(quiet(fd));
	subscribe(fd, subscription(type, 0, 10, 0, TIPC_SUB_PORTS, ""));
	EQ(event_from(fd).event, TIPC_PUBLISHED);
	EQ(event_from(fd).event, TIPC_PUBLISHED);
	EQ(event_from(fd).event, TIPC_SUBSCR_TIMEOUT);
}

static void several_on_one_connection(void)
{
	uint32_t type = a_type(), other = a_type();
	int fd = topology_connection(0);
	subscribe(fd, subscription(type, 0, 10, NEVER, TIPC_SUB_PORTS, "first"));
	subscribe(fd, subscription(other, 0, 10, NEVER, TIPC_SUB_SERVICE, "second"));
	subscribe(fd, subscription(type, 5, 20, NEVER, TIPC_SUB_PORTS, "third"));
	bound(SOCK_RDM, service(other, 3));
	SAME(event_from(fd).s.usr_handle, "second", 7);
	bound(SOCK_RDM, service(type, 7));
	char first = event_from(fd).s.usr_handle[0], second = event_from(fd).s.usr_handle[0];
	IS((first == 'f' && second == 't') || (first == 't' && second == 'f'));
	bound(SOCK_RDM, service(type, 15));
	SAME(event_from(fd).s.usr_handle, "third", 6);
}

static void cancelled(void)
{
	uint32_t type = a_type();
	int fd = topology_connection(0);
	struct tipc_subscr one = subscription(type, 0, 10, NEVER, TIPC_SUB_PORTS, "one"), two = one;
	two.usr_handle[0] = 'O';
	subscribe(fd, one);
	subscribe(fd, two);
	/* With different contents it names a subscription that does not exist. */
	struct tipc_subscr cancel = one;
	cancel.filter |= TIPC_SUB_CANCEL;
	cancel.seq.upper = 9;
	subscribe(fd, cancel);
	cancel.seq.upper = 10;
	subscribe(fd, cancel);
	IS(quiet(fd));
	int to = bound(SOCK_RDM, service(type, 5));
	struct tipc_event e = event_from(fd);
	EQ(e.s.usr_handle[0], 'O');
	IS(quiet(fd));
	subscribe(fd, cancel); /* cancelling twice has no effect */
	cancel.usr_handle[0] = 'O';
	subscribe(fd, cancel);
	IS(quiet(fd));
	close(to);
	IS(quiet(fd));
}

static void cancelled_in_the_other_byte_order(void)
{
	uint32_t type = a_type();
	turned = true;
	int fd = topology_connection(0);
	struct tipc_subscr one = subscription(type, 0, 10, NEVER, TIPC_SUB_PORTS, "one"), cancel = one;
	subscribe(fd, one);
	cancel.filter |= TIPC_SUB_CANCEL;
	subscribe(fd, cancel);
	/* The kernel's server is a separate thread; by then it has processed the request. */
	IS(quiet(fd));
	OK(bound(SOCK_RDM, service(type, 5)));
	IS(quiet(fd));
}

static void refused_range(void)
{
	int fd = topology_connection(0);
	subscribe(fd, subscription(a_type(), 2, 1, NEVER, TIPC_SUB_PORTS, ""));
	expect_end(fd);
}

static void refused_filter(void)
{
	int fd = topology_connection(0);
	subscribe(fd, subscription(a_type(), 1, 2, NEVER, TIPC_SUB_PORTS | TIPC_SUB_SERVICE, ""));
	expect_end(fd);
}

static void refused_length(void)
{
	static const size_t lengths[] = {1, 27, 29, 56};
	for (size_t i = 0; i < COUNT(lengths); i++) {
		struct tipc_subscr twice[2] = {subscription(a_type(), 1, 2, 100, TIPC_SUB_PORTS, "")};
		twice[1] = twice[0];
		int fd = topology_connection(0);
		EQ(send(fd, twice, lengths[i], 0), lengths[i]);
		if (lengths[i] < sizeof twice[0]) {
			expect_end(fd);
			continue;
		}
		/* Longer messages are truncated. */
		expect_event(fd, TIPC_SUBSCR_TIMEOUT, 1, 2, 0);
		IS(quiet(fd));
	}
}

static void the_rest_goes_with_the_connection(void)
{
	uint32_t type = a_type();
	int fd = topology_connection(0);
	subscribe(fd, subscription(type, 0, 10, NEVER, TIPC_SUB_PORTS, ""));
	subscribe(fd, subscription(type, 2, 1, NEVER, TIPC_SUB_PORTS, ""));
	expect_end(fd);
	int other = topology_connection(0);
	subscribe(other, subscription(type, 0, 10, NEVER, TIPC_SUB_PORTS, ""));
	int to = bound(SOCK_RDM, service(type, 1));
	expect_event(other, TIPC_PUBLISHED, 1, 1, to);
}

static void in_the_request(void)
{
	/* The first subscription may travel with the connection request. */
	uint32_t type = a_type();
	int to = bound(SOCK_RDM, service(type, 5)), fd = a_socket(SOCK_SEQPACKET);
	struct tipc_subscr s = subscription(type, 0, 10, NEVER, TIPC_SUB_PORTS, "");
	EQ(sent_to(fd, &s, sizeof s, service(TIPC_TOP_SRV, TIPC_TOP_SRV)), sizeof s);
	expect_event(fd, TIPC_PUBLISHED, 5, 5, to);
}

static void as_a_stream(void)
{
	/* Undocumented, but used by some programs. */
	uint32_t type = a_type();
	Address server = service(TIPC_TOP_SRV, TIPC_TOP_SRV);
	int to = bound(SOCK_RDM, service(type, 5)), fd = a_socket(SOCK_STREAM);
	OK(connect(fd, ADDR(server), sizeof server));
	subscribe(fd, subscription(type, 0, 10, NEVER, TIPC_SUB_PORTS, ""));
	expect_event(fd, TIPC_PUBLISHED, 5, 5, to);
}

static void without_waiting(void)
{
	uint32_t type = a_type();
	Address server = service(TIPC_TOP_SRV, TIPC_TOP_SRV);
	int fd = a_socket(SOCK_SEQPACKET | SOCK_NONBLOCK);
	char byte;
	if (connect(fd, ADDR(server), sizeof server) != 0)
		EQ(errno, EINPROGRESS);
	EQ(events_of(fd, POLLOUT, 5000), POLLOUT);
	subscribe(fd, subscription(type, 0, 10, NEVER, TIPC_SUB_PORTS, ""));
	ERR(recv(fd, &byte, 1, 0), EAGAIN);
	int to = bound(SOCK_RDM, service(type, 5));
	expect_event(fd, TIPC_PUBLISHED, 5, 5, to);
}

static void many_events_wait(void)
{
	/* A subscriber that does not read loses no event. */
	uint32_t type = a_type();
	int fd = topology_connection(0), to = a_socket(SOCK_RDM);
	subscribe(fd, subscription(type, 0, 10000, NEVER, TIPC_SUB_PORTS, ""));
	for (uint32_t i = 0; i < 600; i++) {
		Address name = service(type, i);
		OK(bind(to, ADDR(name), sizeof name));
	}
	for (uint32_t i = 0; i < 600; i++)
		expect_event(fd, TIPC_PUBLISHED, i, i, to);
}

const struct test_case subscription_cases[] = {
	{"subscription/other-byte-order", "10.1", other_byte_order, false},
	{"subscription/filter-zero", "10.1", filter_zero, false},
	{"subscription/times-out", "10.2", times_out, false},
	{"subscription/several-on-one-connection", "10.1", several_on_one_connection, false},
	{"subscription/cancelled", "10.2", cancelled, false},
	{"subscription/cancelled-in-the-other-byte-order", "10.2", cancelled_in_the_other_byte_order, false},
	{"subscription/refused-range", "10.2", refused_range, false},
	{"subscription/refused-filter", "10.2", refused_filter, false},
	{"subscription/refused-length", "10.2", refused_length, false},
	{"subscription/refusal-ends-the-others", "10.2", the_rest_goes_with_the_connection, false},
	{"subscription/in-the-request", "10.1", in_the_request, false},
	{"subscription/as-a-stream", "10.1", as_a_stream, false},
	{"subscription/without-waiting", "10.1", without_waiting, false},
	{"subscription/many-events-wait", "10.2", many_events_wait, false},
	{NULL, NULL, NULL, false},
};

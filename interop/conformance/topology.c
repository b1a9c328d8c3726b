/* The topology server: access, events, filters. */
#include "topology.h"

#include <signal.h>

#include <byteswap.h>

bool turned;

static uint32_t word(uint32_t value)
{
	return turned ? bswap_32(value) : value;
}

int topology_connection(uint32_t domain)
{
	Address server = service(TIPC_TOP_SRV, TIPC_TOP_SRV);
	server.addr.name.domain = domain;
	int fd = a_socket(SOCK_SEQPACKET);
	OK(connect(fd, ADDR(server), sizeof server));
	return fd;
}

struct tipc_subscr subscription(uint32_t type, uint32_t lower, uint32_t upper, uint32_t timeout, uint32_t filter, const char *handle)
{
	struct tipc_subscr s = {.seq = {type, lower, upper}, .timeout = timeout, .filter = filter};
	memcpy(s.usr_handle, handle, strnlen(handle, sizeof s.usr_handle));
	return s;
}

void subscribe(int fd, struct tipc_subscr s)
{
	s.seq.type = word(s.seq.type);
	s.seq.lower = word(s.seq.lower);
	s.seq.upper = word(s.seq.upper);
	s.timeout = word(s.timeout);
	s.filter = word(s.filter);
	EQ(send(fd, &s, sizeof s, 0), sizeof s);
}

struct tipc_event event_from(int fd)
{
	struct tipc_event e;
	IS(events_of(fd, POLLIN, 5000) & POLLIN);
	EQ(recv(fd, &e, sizeof e, 0), sizeof e);
	uint32_t *words[] = {&e.event, &e.found_lower, &e.found_upper, &e.port.ref, &e.port.node,
			     &e.s.seq.type, &e.s.seq.lower, &e.s.seq.upper, &e.s.timeout, &e.s.filter};
	for (size_t i = 0; i < COUNT(words); i++)
		*words[i] = word(*words[i]);
	return e;
}

void expect_event(int fd, uint32_t kind, uint32_t lower, uint32_t upper, int of)
{
	struct tipc_event e = event_from(fd);
	EQ(e.event, kind);
	EQ(e.found_lower, lower);
	EQ(e.found_upper, upper);
	Address port = {0};
	if (of)
		port = own_address(of);
	EQ(e.port.ref, port.addr.id.ref);
	EQ(e.port.node, port.addr.id.node);
}

void expect_end(int fd)
{
	char bytes[100];
	IS(events_of(fd, POLLIN, 5000) & POLLHUP);
	long n = recv(fd, bytes, sizeof bytes, 0);
	IS(n == 0 || (n == -1 && errno == ECONNRESET));
}

static void access_to_it(void)
{
	int fd = topology_connection(0);
	Address own = own_address(fd), peer = peer_address(fd);
	EQ(peer.addr.id.node, own.addr.id.node);
	close(fd);
	close(topology_connection(own.addr.id.node));
	/* Several at once. */
	int many[5];
	for (size_t i = 0; i < COUNT(many); i++)
		many[i] = topology_connection(0);
	for (size_t i = 0; i < COUNT(many); i++)
		close(many[i]);
}

static void every_field(void)
{
	uint32_t type = a_type();
	int to = bound(SOCK_RDM, range(type, 10, 20)), fd = topology_connection(0);
	struct tipc_subscr asked = subscription(type, 15, 30, NEVER, TIPC_SUB_PORTS, "handle!!");
	subscribe(fd, asked);
	struct tipc_event e = event_from(fd);
	EQ(e.event, TIPC_PUBLISHED);
	EQ(e.found_lower, 10); /* as bound, not as requested */
	EQ(e.found_upper, 20);
	Address own = own_address(to);
	EQ(e.port.ref, own.addr.id.ref);
	EQ(e.port.node, own.addr.id.node);
	SAME(&e.s, &asked, sizeof asked);
	close(to);
	e = event_from(fd);
	EQ(e.event, TIPC_WITHDRAWN);
	EQ(e.found_lower, 10);
	EQ(e.found_upper, 20);
	EQ(e.port.ref, own.addr.id.ref);
	SAME(&e.s, &asked, sizeof asked);
}

static void each_binding(void)
{
	uint32_t type = a_type();
	int fd = topology_connection(0);
	subscribe(fd, subscription(type, 0, 100, NEVER, TIPC_SUB_PORTS, ""));
	int one = bound(SOCK_RDM, service(type, 5));
	expect_event(fd, TIPC_PUBLISHED, 5, 5, one);
	int two = bound(SOCK_STREAM, service(type, 5));
	expect_event(fd, TIPC_PUBLISHED, 5, 5, two);
	int three = bound(SOCK_RDM, range(type, 90, 200));
	expect_event(fd, TIPC_PUBLISHED, 90, 200, three);
	int outside = bound(SOCK_RDM, service(type, 101));
	IS(quiet(fd));
	Address gone = scoped(service(type, 5), -TIPC_CLUSTER_SCOPE);
	OK(bind(one, ADDR(gone), sizeof gone));
	expect_event(fd, TIPC_WITHDRAWN, 5, 5, one);
	OK(bind(three, NULL, 0));
	expect_event(fd, TIPC_WITHDRAWN, 90, 200, three);
	close(outside);
	IS(quiet(fd));
}

static void first_and_last_binding(void)
{
	uint32_t type = a_type();
	int fd = topology_connection(0);
	subscribe(fd, subscription(type, 0, 100, NEVER, TIPC_SUB_SERVICE, ""));
	int one = bound(SOCK_RDM, service(type, 5));
	expect_event(fd, TIPC_PUBLISHED, 5, 5, one);
	int two = bound(SOCK_RDM, service(type, 5));
	IS(quiet(fd));
	/* Another range is another service, even if it overlaps. */
	int three = bound(SOCK_RDM, range(type, 4, 6));
	expect_event(fd, TIPC_PUBLISHED, 4, 6, three);
	Address gone = scoped(service(type, 5), -TIPC_CLUSTER_SCOPE);
	OK(bind(one, ADDR(gone), sizeof gone));
	IS(quiet(fd));
	OK(bind(two, ADDR(gone), sizeof gone));
	expect_event(fd, TIPC_WITHDRAWN, 5, 5, two);
	OK(bind(three, NULL, 0));
	expect_event(fd, TIPC_WITHDRAWN, 4, 6, three);
}

static void initial_bindings(void)
{
	/* In the order of binding. */
	uint32_t type = a_type();
	int sockets[5], fd = topology_connection(0);
	static const uint32_t lower[] = {50, 10, 10, 30, 0}, upper[] = {50, 20, 20, 30, 100};
	for (size_t i = 0; i < COUNT(sockets); i++)
		sockets[i] = bound(SOCK_RDM, range(type, lower[i], upper[i]));
	subscribe(fd, subscription(type, 15, 55, NEVER, TIPC_SUB_PORTS, ""));
	for (size_t i = 0; i < COUNT(sockets); i++)
		expect_event(fd, TIPC_PUBLISHED, lower[i], upper[i], sockets[i]);
	IS(quiet(fd));
	fd = topology_connection(0);
	subscribe(fd, subscription(type, 15, 55, NEVER, TIPC_SUB_SERVICE, ""));
	for (size_t i = 0; i < COUNT(sockets); i++)
		if (i != 2)
			expect_event(fd, TIPC_PUBLISHED, lower[i], upper[i], sockets[i]);
	IS(quiet(fd));
}

static void no_initial_state(void)
{
	uint32_t type = a_type();
	int fd = topology_connection(0), one = bound(SOCK_RDM, service(type, 1));
	subscribe(fd, subscription(type, 0, 10, NEVER, TIPC_SUB_PORTS | LATER_ONLY, ""));
	IS(quiet(fd));
	int two = bound(SOCK_RDM, service(type, 2));
	expect_event(fd, TIPC_PUBLISHED, 2, 2, two);
	OK(bind(one, NULL, 0));
	expect_event(fd, TIPC_WITHDRAWN, 1, 1, one);
}

static void scopes(void)
{
	uint32_t type = a_type();
	int cluster_only = topology_connection(0), node_only = topology_connection(0), all = topology_connection(0);
	subscribe(cluster_only, subscription(type, 0, 10, NEVER, TIPC_SUB_PORTS | CLUSTER_ONLY, ""));
	subscribe(node_only, subscription(type, 0, 10, NEVER, TIPC_SUB_PORTS | NODE_ONLY, ""));
	subscribe(all, subscription(type, 0, 10, NEVER, TIPC_SUB_PORTS, ""));
	int cluster = bound(SOCK_RDM, service(type, 1));
	expect_event(cluster_only, TIPC_PUBLISHED, 1, 1, cluster);
	expect_event(all, TIPC_PUBLISHED, 1, 1, cluster);
	int node = bound(SOCK_RDM, scoped(service(type, 2), TIPC_NODE_SCOPE));
	expect_event(node_only, TIPC_PUBLISHED, 2, 2, node);
	expect_event(all, TIPC_PUBLISHED, 2, 2, node);
	IS(quiet(cluster_only));
	IS(quiet(node_only));
	/* This includes existing bindings. */
	int again = topology_connection(0);
	subscribe(again, subscription(type, 0, 10, NEVER, TIPC_SUB_PORTS | NODE_ONLY, ""));
	expect_event(again, TIPC_PUBLISHED, 2, 2, node);
	IS(quiet(again));
}

static void own_node(void)
{
	int fd = topology_connection(0);
	Address own = own_address(fd);
	subscribe(fd, subscription(TIPC_NODE_STATE, 0, ~0u, NEVER, TIPC_SUB_PORTS, ""));
	struct tipc_event e;
	/* A node that has no address yet is not in its own table. */
	if (own.addr.id.node == 0) {
		IS(quiet(fd));
		return;
	}
	do
		e = event_from(fd);
	while (e.found_lower != own.addr.id.node);
	EQ(e.event, TIPC_PUBLISHED);
	EQ(e.found_upper, own.addr.id.node);
	EQ(e.port.node, own.addr.id.node);
}

static void the_server_itself(void)
{
	int fd = topology_connection(0);
	subscribe(fd, subscription(TIPC_TOP_SRV, TIPC_TOP_SRV, TIPC_TOP_SRV, NEVER, TIPC_SUB_PORTS, ""));
	struct tipc_event e = event_from(fd);
	EQ(e.event, TIPC_PUBLISHED);
	EQ(e.found_lower, TIPC_TOP_SRV);
	EQ(e.port.node, own_address(fd).addr.id.node);
	IS(e.port.ref != 0);
}

static void every_way_of_going(void)
{
	uint32_t type = a_type();
	int fd = topology_connection(0);
	subscribe(fd, subscription(type, 0, 10, NEVER, TIPC_SUB_PORTS, ""));
	pid_t pid = fork();
	if (pid == 0) {
		bound(SOCK_RDM, service(type, 7));
		pause();
	}
	EQ(event_from(fd).event, TIPC_PUBLISHED);
	kill(pid, 9);
	struct tipc_event e = event_from(fd);
	EQ(e.event, TIPC_WITHDRAWN);
	EQ(e.found_lower, 7);
	Address address = service(type, 8);
	int listening = bound(SOCK_STREAM, address);
	EQ(event_from(fd).event, TIPC_PUBLISHED);
	OK(listen(listening, 1));
	struct pair ends = connected_to(SOCK_STREAM, listening, address);
	close(ends.client);
	IS(quiet(fd)); /* connections have no bindings */
	close(listening);
	EQ(event_from(fd).event, TIPC_WITHDRAWN);
}

const struct test_case topology_cases[] = {
	{"topology/access", "10.1", access_to_it, false},
	{"topology/every-field", "10.1", every_field, false},
	{"topology/each-binding", "10.2", each_binding, false},
	{"topology/first-and-last-binding", "10.2", first_and_last_binding, false},
	{"topology/initial-bindings", "10.2", initial_bindings, false},
	{"topology/no-initial-state", "10.1", no_initial_state, false},
	{"topology/scopes", "10.1", scopes, false},
	{"topology/own-node", "10.2", own_node, false},
	{"topology/the-server-itself", "10.2", the_server_itself, false},
	{"topology/causes-of-withdrawal", "10.2", every_way_of_going, false},
	{NULL, NULL, NULL, false},
};

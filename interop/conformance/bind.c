/* Binding and unbinding: service addresses, ranges, scopes, lookup. */
#include "check.h"

static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_RDM, SOCK_DGRAM};

/* Whether `to` is bound: a message to it is delivered. */
static bool found(Address to)
{
	int fd = a_socket(SOCK_RDM);
	long sent = sent_to(fd, "?", 1, to);
	if (sent < 0)
		EQ(errno, EHOSTUNREACH);
	close(fd);
	return sent == 1;
}

static void every_type(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		uint32_t type = a_type();
		int fd = bound(types[i], service(type, 5));
		IS(found(service(type, 5)));
		IS(!found(service(type, 6)));
		close(fd);
		IS(!found(service(type, 5)));
	}
}

static void ranges(void)
{
	uint32_t type = a_type();
	bound(SOCK_RDM, range(type, 10, 20));
	IS(!found(service(type, 9)));
	IS(found(service(type, 10)));
	IS(found(service(type, 20)));
	IS(!found(service(type, 21)));
	bound(SOCK_RDM, range(type, 0xfffffff0, 0xffffffff));
	IS(found(service(type, 0xffffffff)));
	uint32_t whole = a_type();
	bound(SOCK_RDM, range(whole, 0, 0xffffffff));
	IS(found(service(whole, 0)));
}

static void refused(void)
{
	uint32_t type = a_type();
	for (size_t i = 0; i < COUNT(types); i++) {
		int fd = a_socket(types[i]);
		Address a = range(type, 2, 1);
		ERR(bind(fd, ADDR(a), sizeof a), EINVAL);
		a = service(type, 1);
		ERR(bind(fd, ADDR(a), sizeof a - 1), EINVAL);
		ERR(bind(fd, ADDR(a), 2), EINVAL);
		ERR(bind(fd, ADDR(a), 1000), EINVAL);
		ERR(bind(fd, NULL, sizeof a), EFAULT);
		a.family = AF_INET;
		ERR(bind(fd, ADDR(a), sizeof a), EINVAL);
		a.family = AF_UNSPEC;
		ERR(bind(fd, ADDR(a), sizeof a), EINVAL);
		a = service(type, 1);
		a.addrtype = 0;
		ERR(bind(fd, ADDR(a), sizeof a), EINVAL);
		a.addrtype = 4;
		ERR(bind(fd, ADDR(a), sizeof a), EINVAL);
		a = port(77, 0);
		ERR(bind(fd, ADDR(a), sizeof a), EAFNOSUPPORT);
	}
	IS(!found(service(type, 1)));
}

static void reserved(void)
{
	static const uint32_t reserved_types[] = {0, 1, 2, 3, 62, 63};
	for (size_t i = 0; i < COUNT(reserved_types); i++) {
		int fd = a_socket(SOCK_RDM);
		Address a = service(reserved_types[i], 4711);
		ERR(bind(fd, ADDR(a), sizeof a), EACCES);
		a = range(reserved_types[i], 1, 2);
		ERR(bind(fd, ADDR(a), sizeof a), EACCES);
		a = scoped(a, -TIPC_CLUSTER_SCOPE);
		ERR(bind(fd, ADDR(a), sizeof a), EACCES);
	}
	int fd = bound(SOCK_RDM, service(64, 0x10000000u + (uint32_t)getpid()));
	IS(found(service(64, 0x10000000u + (uint32_t)getpid())));
	close(fd);
}

static void longer_address(void)
{
	struct {
		Address address;
		char rest[32];
	} a = {.address = service(a_type(), 3)};
	int fd = a_socket(SOCK_RDM);
	OK(bind(fd, (struct sockaddr *)&a, sizeof a));
	IS(found(a.address));
}

static void several(void)
{
	uint32_t type = a_type(), other = a_type();
	int fd = bound(SOCK_RDM, service(type, 1));
	Address more[] = {service(type, 2), range(type, 10, 19), service(other, 1)};
	for (size_t i = 0; i < COUNT(more); i++)
		OK(bind(fd, ADDR(more[i]), sizeof more[i]));
	for (uint32_t instance = 1; instance <= 2; instance++)
		IS(found(service(type, instance)));
	IS(found(service(type, 15)));
	IS(found(service(other, 1)));
	close(fd);
	IS(!found(service(type, 15)));
	IS(!found(service(other, 1)));
}

static void twice(void)
{
	Address name = service(a_type(), 1);
	int fd = bound(SOCK_RDM, name);
	OK(bind(fd, ADDR(name), sizeof name));
	Address gone = scoped(name, -TIPC_CLUSTER_SCOPE);
	OK(bind(fd, ADDR(gone), sizeof gone));
	IS(found(name));
	OK(bind(fd, ADDR(gone), sizeof gone));
	IS(!found(name));
}

static void scopes(void)
{
	static const signed char all[] = {0, TIPC_ZONE_SCOPE, TIPC_CLUSTER_SCOPE, TIPC_NODE_SCOPE, 5, 127};
	for (size_t i = 0; i < COUNT(all); i++) {
		Address name = scoped(service(a_type(), 1), all[i]);
		int fd = bound(SOCK_RDM, name);
		IS(found(name));
		/* Any scope but node scope is cluster scope. */
		Address gone = scoped(name, all[i] == TIPC_NODE_SCOPE ? -TIPC_NODE_SCOPE : -TIPC_CLUSTER_SCOPE);
		OK(bind(fd, ADDR(gone), sizeof gone));
		IS(!found(name));
	}
}

static void unbind(void)
{
	static const signed char negative[] = {-TIPC_ZONE_SCOPE, -TIPC_CLUSTER_SCOPE, -5, -128};
	for (size_t i = 0; i < COUNT(negative); i++) {
		Address name = service(a_type(), 9), gone = scoped(name, negative[i]);
		int fd = bound(SOCK_RDM, name);
		OK(bind(fd, ADDR(gone), sizeof gone));
		IS(!found(name));
		OK(bind(fd, ADDR(name), sizeof name));
		IS(found(name));
	}
}

static void unbind_what_is_not_bound(void)
{
	Address name = service(a_type(), 9);
	int fd = a_socket(SOCK_RDM);
	Address gone = scoped(name, -TIPC_CLUSTER_SCOPE);
	OK(bind(fd, ADDR(gone), sizeof gone)); /* unbinding succeeds if nothing is bound at all */
	OK(bind(fd, ADDR(name), sizeof name));
	gone = scoped(name, -TIPC_NODE_SCOPE);
	ERR(bind(fd, ADDR(gone), sizeof gone), EINVAL);
	gone = scoped(service(a_type(), 9), -TIPC_CLUSTER_SCOPE);
	ERR(bind(fd, ADDR(gone), sizeof gone), EINVAL);
	gone = scoped(name, -TIPC_CLUSTER_SCOPE);
	gone.addr.name.name.instance = 8;
	ERR(bind(fd, ADDR(gone), sizeof gone), EINVAL);
	gone = scoped(range(name.addr.name.name.type, 9, 10), -TIPC_CLUSTER_SCOPE);
	ERR(bind(fd, ADDR(gone), sizeof gone), EINVAL);
	IS(found(name));
	/* A service address equals the range of that one instance. */
	gone = scoped(range(name.addr.name.name.type, 9, 9), -TIPC_CLUSTER_SCOPE);
	OK(bind(fd, ADDR(gone), sizeof gone));
	IS(!found(name));
}

static void unbind_another_sockets(void)
{
	Address name = service(a_type(), 1), gone = scoped(name, -TIPC_CLUSTER_SCOPE);
	bound(SOCK_RDM, name);
	int other = bound(SOCK_RDM, service(a_type(), 1));
	ERR(bind(other, ADDR(gone), sizeof gone), EINVAL);
	IS(found(name));
}

static void unbind_all(void)
{
	uint32_t type = a_type();
	int fd = bound(SOCK_RDM, service(type, 1));
	Address more = scoped(range(type, 5, 6), TIPC_NODE_SCOPE);
	OK(bind(fd, ADDR(more), sizeof more));
	OK(bind(fd, NULL, 0));
	IS(!found(service(type, 1)));
	IS(!found(service(type, 5)));
	OK(bind(fd, NULL, 0));
	OK(bind(fd, ADDR(more), sizeof more));
	IS(found(service(type, 5)));
}

static void in_all_states(void)
{
	Address name = service(a_type(), 1), address, gone;
	int listening = listener(SOCK_STREAM, &address);
	OK(bind(listening, ADDR(name), sizeof name));
	IS(found(name));
	struct pair ends = connected_to(SOCK_STREAM, listening, name);
	ERR(bind(ends.client, ADDR(name), sizeof name), EINVAL);
	ERR(bind(ends.server, ADDR(name), sizeof name), EINVAL);
	gone = scoped(name, -TIPC_CLUSTER_SCOPE);
	OK(bind(listening, ADDR(gone), sizeof gone));
	IS(!found(name));
	IS(found(address));
}

/* Counts how many of `count` messages to `to` each of the two sockets gets. */
static void share(int one, int other, Address to, int count, int got[2])
{
	int from = a_socket(SOCK_RDM), fds[] = {one, other};
	char byte;
	for (int i = 0; i < count; i++)
		EQ(sent_to(from, "x", 1, to), 1);
	got[0] = got[1] = 0;
	for (int left = count; left > 0; left--) {
		struct pollfd wait[2] = {{.fd = one, .events = POLLIN}, {.fd = other, .events = POLLIN}};
		IS(OK(poll(wait, 2, 5000)) > 0);
		int which = wait[0].revents ? 0 : 1;
		EQ(recv(fds[which], &byte, 1, 0), 1);
		got[which]++;
	}
}

static void round_robin(void)
{
	Address name = service(a_type(), 1);
	int got[2], one = bound(SOCK_RDM, name), other = bound(SOCK_DGRAM, name);
	share(one, other, name, 20, got);
	EQ(got[0], 10);
	EQ(got[1], 10);
}

static void overlapping_ranges(void)
{
	uint32_t type = a_type();
	int got[2], low = bound(SOCK_RDM, range(type, 0, 10)), high = bound(SOCK_RDM, range(type, 5, 15));
	share(low, high, service(type, 7), 6, got);
	EQ(got[0], 6);
	share(low, high, service(type, 12), 6, got);
	EQ(got[1], 6);
	/* The same in reverse order: the order of binding has no influence. */
	type = a_type();
	high = bound(SOCK_RDM, range(type, 5, 15)), low = bound(SOCK_RDM, range(type, 0, 10));
	share(low, high, service(type, 7), 6, got);
	EQ(got[0], 6);
}

static void domains(void)
{
	Address name = service(a_type(), 1);
	int fd = bound(SOCK_RDM, name);
	Address own = own_address(fd);
	name.addr.name.domain = own.addr.id.node;
	IS(found(name));
	name.addr.name.domain = 0x01234567; /* no such node */
	IS(!found(name));
}

static void type_of_socket_is_no_matter(void)
{
	/* Bindings are independent of the kind of socket. */
	Address name = service(a_type(), 1);
	int stream = bound(SOCK_STREAM, name), rdm = bound(SOCK_RDM, name);
	int got[2], from = a_socket(SOCK_RDM);
	char byte;
	for (int i = 0; i < 4; i++)
		EQ(sent_to(from, "x", 1, name), 1);
	got[0] = 0;
	while (events_of(rdm, POLLIN, 300) & POLLIN) {
		EQ(recv(rdm, &byte, 1, 0), 1);
		got[0]++;
	}
	EQ(got[0], 2);
	close(stream);
}

static void reuse(void)
{
	Address name = service(a_type(), 1);
	int fd = a_socket(SOCK_SEQPACKET), on = 1;
	OK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	EQ(get_socket_option(fd, SO_REUSEADDR), 1);
	OK(bind(fd, ADDR(name), sizeof name));
	bound(SOCK_SEQPACKET, name); /* works without it too: a service can be bound any number of times */
}

const struct test_case bind_cases[] = {
	{"bind/every-type", "8.1", every_type, false},
	{"bind/ranges", "1.2", ranges, false},
	{"bind/refused", "8.1", refused, false},
	{"bind/reserved-types", "1.2", reserved, false},
	{"bind/longer-address", "8.1", longer_address, false},
	{"bind/several-names", "1.2", several, false},
	{"bind/same-name-twice", "1.2", twice, false},
	{"bind/scopes", "1.3", scopes, false},
	{"bind/negative-scope-unbinds", "1.3", unbind, false},
	{"bind/unbind-unbound", "1.3", unbind_what_is_not_bound, false},
	{"bind/unbind-another-sockets", "1.3", unbind_another_sockets, false},
	{"bind/length-zero-unbinds-all", "1.3", unbind_all, false},
	{"bind/in-all-states", "8.2", in_all_states, false},
	{"bind/round-robin", "1.4", round_robin, false},
	{"bind/first-matching-range", "1.4", overlapping_ranges, false},
	{"bind/lookup-domain", "1.4", domains, false},
	{"bind/shared-by-all-socket-types", "1.4", type_of_socket_is_no_matter, false},
	{"bind/reuse-address", "8.9", reuse, false},
	{NULL, NULL, NULL, false},
};

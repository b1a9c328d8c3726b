/* Opening sockets, their properties, and their own and peer addresses. */
#include "check.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_RDM, SOCK_DGRAM};

static void four_types(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		int fd = a_socket(types[i]);
		EQ(get_socket_option(fd, SO_TYPE), types[i]);
		EQ(get_socket_option(fd, SO_DOMAIN), AF_TIPC);
		EQ(get_socket_option(fd, SO_PROTOCOL), 0);
		EQ(get_socket_option(fd, SO_ERROR), 0);
		EQ(get_socket_option(fd, SO_ACCEPTCONN), 0);
		OK(close(fd));
	}
}

static void other_types(void)
{
	ERR(socket(AF_TIPC, SOCK_RAW, 0), EPROTOTYPE);
	ERR(socket(AF_TIPC, SOCK_DCCP, 0), EPROTOTYPE);
	ERR(socket(AF_TIPC, SOCK_PACKET, 0), EPROTOTYPE);
	ERR(socket(AF_TIPC, 0, 0), EPROTOTYPE);
	ERR(socket(AF_TIPC, 11, 0), EINVAL);
	ERR(socket(AF_TIPC, -1, 0), EINVAL);
	ERR(socket(AF_TIPC, SOCK_RDM | 0x10000, 0), EINVAL);
}

static void protocol(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		ERR(socket(AF_TIPC, types[i], 1), EPROTONOSUPPORT);
		ERR(socket(AF_TIPC, types[i], 6), EPROTONOSUPPORT);
		ERR(socket(AF_TIPC, types[i], -1), EPROTONOSUPPORT);
	}
}

static void creation_flags(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		int fd = a_socket(types[i]);
		EQ(OK(fcntl(fd, F_GETFL)) & (O_ACCMODE | O_NONBLOCK), O_RDWR);
		EQ(OK(fcntl(fd, F_GETFD)) & FD_CLOEXEC, 0);
		close(fd);
		fd = a_socket(types[i] | SOCK_NONBLOCK | SOCK_CLOEXEC);
		EQ(OK(fcntl(fd, F_GETFL)) & O_NONBLOCK, O_NONBLOCK);
		EQ(OK(fcntl(fd, F_GETFD)) & FD_CLOEXEC, FD_CLOEXEC);
		close(fd);
	}
}

static void lowest_descriptor(void)
{
	int first = a_socket(SOCK_RDM), second = a_socket(SOCK_RDM);
	EQ(second > first, 1);
	close(first);
	EQ(a_socket(SOCK_STREAM), first);
}

static void non_blocking_switch(void)
{
	int fd = a_socket(SOCK_RDM), on = 1, off = 0;
	char byte;
	OK(ioctl(fd, FIONBIO, &on));
	IS(OK(fcntl(fd, F_GETFL)) & O_NONBLOCK);
	ERR(recv(fd, &byte, 1, 0), EAGAIN);
	OK(ioctl(fd, FIONBIO, &off));
	IS(!(OK(fcntl(fd, F_GETFL)) & O_NONBLOCK));
	blocking(fd, false);
	ERR(recv(fd, &byte, 1, 0), EAGAIN);
}

static void close_on_exec_switch(void)
{
	int fd = a_socket(SOCK_RDM);
	OK(fcntl(fd, F_SETFD, FD_CLOEXEC));
	EQ(OK(fcntl(fd, F_GETFD)), FD_CLOEXEC);
	OK(ioctl(fd, FIONCLEX));
	EQ(OK(fcntl(fd, F_GETFD)), 0);
	OK(ioctl(fd, FIOCLEX));
	EQ(OK(fcntl(fd, F_GETFD)), FD_CLOEXEC);
}

static void a_file(void)
{
	int fd = a_socket(SOCK_STREAM);
	struct stat about;
	OK(fstat(fd, &about));
	IS(S_ISSOCK(about.st_mode));
	ERR(lseek(fd, 0, SEEK_SET), ESPIPE);
	char byte = 0;
	ERR(pread(fd, &byte, 1, 0), ESPIPE);
	ERR(pwrite(fd, &byte, 1, 0), ESPIPE);
	ERR(ftruncate(fd, 0), EINVAL);
}

static void closed(void)
{
	int fd = a_socket(SOCK_STREAM);
	Address to = service(a_type(), 1);
	socklen_t length = sizeof to;
	char byte = 0;
	OK(close(fd));
	ERR(close(fd), EBADF);
	ERR(bind(fd, ADDR(to), sizeof to), EBADF);
	ERR(connect(fd, ADDR(to), sizeof to), EBADF);
	ERR(listen(fd, 1), EBADF);
	ERR(accept(fd, NULL, NULL), EBADF);
	ERR(send(fd, &byte, 1, 0), EBADF);
	ERR(recv(fd, &byte, 1, 0), EBADF);
	ERR(getsockname(fd, ADDR(to), &length), EBADF);
	ERR(getpeername(fd, ADDR(to), &length), EBADF);
	ERR(shutdown(fd, SHUT_RDWR), EBADF);
	EQ(events_of(fd, POLLIN, 0), POLLNVAL);
}

static void name_before_bind(void)
{
	uint32_t seen[COUNT(types)];
	for (size_t i = 0; i < COUNT(types); i++) {
		int fd = a_socket(types[i]);
		Address own;
		memset(&own, 0x55, sizeof own);
		socklen_t length = sizeof own;
		OK(getsockname(fd, ADDR(own), &length));
		EQ(length, sizeof own);
		EQ(own.family, AF_TIPC);
		EQ(own.addrtype, TIPC_SOCKET_ADDR);
		EQ(own.scope, 0);
		EQ(own.addr.name.domain, 0);
		IS(own.addr.id.ref != 0);
		seen[i] = own.addr.id.ref;
		for (size_t j = 0; j < i; j++)
			IS(seen[j] != seen[i]);
	}
}

static void name_stays(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		int fd = a_socket(types[i]);
		Address before = own_address(fd), name = service(a_type(), 7);
		OK(bind(fd, ADDR(name), sizeof name));
		Address after = own_address(fd);
		SAME(&after, &before, sizeof after);
	}
}

static void name_in_less_room(void)
{
	int fd = a_socket(SOCK_RDM);
	Address whole = own_address(fd);
	uint8_t bytes[64];
	memset(bytes, 0x55, sizeof bytes);
	socklen_t length = 6;
	OK(getsockname(fd, (struct sockaddr *)bytes, &length));
	EQ(length, sizeof whole);
	SAME(bytes, &whole, 6);
	EQ(bytes[6], 0x55);
	length = sizeof bytes;
	OK(getsockname(fd, (struct sockaddr *)bytes, &length));
	EQ(length, sizeof whole);
	length = 0;
	OK(getsockname(fd, (struct sockaddr *)bytes, &length));
	EQ(length, sizeof whole);
	length = (socklen_t)-1;
	ERR(getsockname(fd, (struct sockaddr *)bytes, &length), EINVAL);
}

static void peer_name(void)
{
	Address address, a;
	socklen_t length = sizeof a;
	for (size_t i = 0; i < 2; i++) {
		int listening = listener(types[i], &address);
		ERR(getpeername(listening, ADDR(a), &length), ENOTCONN);
		int fresh = a_socket(types[i]);
		ERR(getpeername(fresh, ADDR(a), &length), ENOTCONN);
		struct pair ends = connected_to(types[i], listening, address);
		Address one = own_address(ends.client), other = peer_address(ends.server);
		SAME(&one, &other, sizeof one);
		one = own_address(ends.server), other = peer_address(ends.client);
		SAME(&one, &other, sizeof one);
		length = 4;
		OK(getpeername(ends.client, ADDR(a), &length));
		EQ(length, sizeof a);
	}
}

static void peer_name_while_connecting(void)
{
	Address address, a;
	socklen_t length = sizeof a;
	listener(SOCK_STREAM, &address);
	int fd = a_socket(SOCK_STREAM | SOCK_NONBLOCK);
	ERR(connect(fd, ADDR(address), sizeof address), EINPROGRESS);
	ERR(getpeername(fd, ADDR(a), &length), ENOTCONN);
}

static void peer_name_after_the_end(void)
{
	for (int type = 0; type < 2; type++) {
		struct pair ends = connected(types[type]);
		Address a;
		socklen_t length = sizeof a;
		close(ends.server);
		arrives(ends.client);
		ERR(getpeername(ends.client, ADDR(a), &length), ENOTCONN);
		IS(own_address(ends.client).addr.id.ref != 0);
	}
}

static void default_peer_is_no_peer(void)
{
	for (size_t i = 2; i < COUNT(types); i++) {
		Address name = service(a_type(), 1), a;
		socklen_t length = sizeof a;
		bound(types[i], name);
		int fd = a_socket(types[i]);
		OK(connect(fd, ADDR(name), sizeof name));
		ERR(getpeername(fd, ADDR(a), &length), ENOTCONN);
	}
}

static void pairs(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		int ends[2];
		char text[8] = "";
		OK(socketpair(AF_TIPC, types[i] | SOCK_CLOEXEC, 0, ends));
		EQ(OK(fcntl(ends[1], F_GETFD)), FD_CLOEXEC);
		for (int from = 0; from < 2; from++) {
			EQ(send(ends[from], "salt", 4, 0), 4);
			arrives(ends[!from]);
			EQ(recv(ends[!from], text, sizeof text, 0), 4);
			SAME(text, "salt", 4);
		}
		Address one = own_address(ends[0]), other = peer_address(ends[1]);
		SAME(&one, &other, sizeof one);
		one = own_address(ends[1]), other = peer_address(ends[0]);
		SAME(&one, &other, sizeof one);
		close(ends[0]);
		if (i < 2) {
			arrives(ends[1]);
			ERR(recv(ends[1], text, sizeof text, 0), ECONNRESET);
		}
	}
}

static void pair_refusals(void)
{
	int ends[2];
	ERR(socketpair(AF_TIPC, SOCK_RAW, 0, ends), EPROTOTYPE);
	ERR(socketpair(AF_TIPC, SOCK_STREAM, 7, ends), EPROTONOSUPPORT);
}

static void listening(void)
{
	for (size_t i = 0; i < 2; i++) {
		int fd = a_socket(types[i]);
		OK(listen(fd, 0)); /* even without a name */
		EQ(get_socket_option(fd, SO_ACCEPTCONN), 1);
		ERR(listen(fd, 5), EINVAL);
		ERR(accept(a_socket(types[i]), NULL, NULL), EINVAL);
	}
	for (size_t i = 2; i < COUNT(types); i++) {
		int fd = a_socket(types[i]);
		ERR(listen(fd, 5), EOPNOTSUPP);
		ERR(accept(fd, NULL, NULL), EOPNOTSUPP);
	}
	struct pair ends = connected(SOCK_STREAM);
	ERR(listen(ends.client, 1), EINVAL);
	ERR(accept(ends.client, NULL, NULL), EINVAL);
}

const struct test_case socket_cases[] = {
	{"socket/four-types", "8.1", four_types, false},
	{"socket/other-types-refused", "8.1", other_types, false},
	{"socket/protocol-is-zero", "8.1", protocol, false},
	{"socket/creation-flags", "8.1", creation_flags, false},
	{"socket/lowest-free-descriptor", "socket(2)", lowest_descriptor, false},
	{"socket/non-blocking-switch", "fcntl(2), ioctl(2)", non_blocking_switch, false},
	{"socket/close-on-exec-switch", "fcntl(2), ioctl(2)", close_on_exec_switch, false},
	{"socket/is-a-socket-file", "fstat(2)", a_file, false},
	{"socket/closed-descriptor", "EBADF", closed, false},
	{"socket/name-before-bind", "8.1", name_before_bind, false},
	{"socket/name-stays-after-bind", "8.1", name_stays, false},
	{"socket/name-truncated", "getsockname(2)", name_in_less_room, false},
	{"socket/peer-name", "8.2", peer_name, false},
	{"socket/peer-name-while-connecting", "8.2", peer_name_while_connecting, false},
	{"socket/peer-name-after-the-end", "8.3", peer_name_after_the_end, false},
	{"socket/default-peer-is-no-peer", "8.1", default_peer_is_no_peer, false},
	{"socket/pairs", "socketpair(2)", pairs, false},
	{"socket/pair-refusals", "socketpair(2)", pair_refusals, false},
	{"socket/listen-and-accept-where-possible", "8.2", listening, false},
	{NULL, NULL, NULL, false},
};

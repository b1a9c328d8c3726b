/* Socket options: defaults, bounds, errors. */
#include "check.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/time.h>

static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_RDM, SOCK_DGRAM};

static long set_raw(int fd, int level, int option, const void *value, socklen_t length)
{
	return setsockopt(fd, level, option, value, length);
}

static long get_raw(int fd, int level, int option, void *value, socklen_t *length)
{
	return getsockopt(fd, level, option, value, length);
}

static void defaults(void)
{
	static const uint32_t source[] = {0, 0, 0, 1}, destination[] = {0, 0, 1, 1};
	for (size_t i = 0; i < COUNT(types); i++) {
		int fd = a_socket(types[i]);
		EQ(get_option(fd, TIPC_IMPORTANCE), TIPC_LOW_IMPORTANCE);
		EQ(get_option(fd, TIPC_SRC_DROPPABLE), source[i]);
		EQ(get_option(fd, TIPC_DEST_DROPPABLE), destination[i]);
		EQ(get_option(fd, TIPC_CONN_TIMEOUT), 8000);
		EQ(get_option(fd, TIPC_NODE_RECVQ_DEPTH), 0);
		EQ(get_option(fd, TIPC_SOCK_RECVQ_DEPTH), 0);
		EQ(get_option(fd, TIPC_SOCK_RECVQ_USED), 0);
	}
}

static void importance(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		int fd = a_socket(types[i]);
		for (uint32_t value = 0; value <= TIPC_CRITICAL_IMPORTANCE; value++) {
			set_option(fd, TIPC_IMPORTANCE, value);
			EQ(get_option(fd, TIPC_IMPORTANCE), value);
		}
		uint32_t value = 4;
		ERR(set_raw(fd, SOL_TIPC, TIPC_IMPORTANCE, &value, 4), EINVAL);
		value = 1000;
		ERR(set_raw(fd, SOL_TIPC, TIPC_IMPORTANCE, &value, 4), EINVAL);
		EQ(get_option(fd, TIPC_IMPORTANCE), TIPC_CRITICAL_IMPORTANCE);
	}
}

static void droppable(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		int fd = a_socket(types[i]);
		for (uint32_t value = 0; value < 3; value++) {
			set_option(fd, TIPC_DEST_DROPPABLE, value);
			EQ(get_option(fd, TIPC_DEST_DROPPABLE), !!value);
			if (types[i] == SOCK_STREAM) {
				ERR(set_raw(fd, SOL_TIPC, TIPC_SRC_DROPPABLE, &value, 4), ENOPROTOOPT);
				continue;
			}
			set_option(fd, TIPC_SRC_DROPPABLE, value);
			EQ(get_option(fd, TIPC_SRC_DROPPABLE), !!value);
		}
	}
}

static void connect_timeout(void)
{
	int fd = a_socket(SOCK_STREAM);
	static const uint32_t values[] = {0, 1, 8000, 65535, 65536 + 5, 0xffffffff};
	for (size_t i = 0; i < COUNT(values); i++) {
		set_option(fd, TIPC_CONN_TIMEOUT, values[i]);
		EQ(get_option(fd, TIPC_CONN_TIMEOUT), values[i] & 0xffff);
	}
}

static void no_delay(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		int fd = a_socket(types[i]);
		uint32_t value;
		socklen_t length = sizeof value;
		set_option(fd, TIPC_NODELAY, 1);
		set_option(fd, TIPC_NODELAY, 0);
		set_option(fd, TIPC_NODELAY, 77);
		ERR(get_raw(fd, SOL_TIPC, TIPC_NODELAY, &value, &length), EINVAL);
	}
}

static void read_only_and_write_only(void)
{
	static const int read_only[] = {TIPC_NODE_RECVQ_DEPTH, TIPC_SOCK_RECVQ_DEPTH, TIPC_SOCK_RECVQ_USED};
	static const int write_only[] = {TIPC_MCAST_BROADCAST, TIPC_MCAST_REPLICAST, TIPC_GROUP_LEAVE, TIPC_NODELAY};
	int fd = a_socket(SOCK_RDM);
	uint32_t value = 1;
	for (size_t i = 0; i < COUNT(read_only); i++) {
		ERR(set_raw(fd, SOL_TIPC, read_only[i], &value, 4), EINVAL);
		ERR(set_raw(fd, SOL_TIPC, read_only[i], NULL, 0), EINVAL);
	}
	for (size_t i = 0; i < COUNT(write_only); i++) {
		socklen_t length = sizeof value;
		ERR(get_raw(fd, SOL_TIPC, write_only[i], &value, &length), EINVAL);
	}
}

static void unknown(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		int fd = a_socket(types[i]);
		uint32_t value = 1;
		socklen_t length = sizeof value;
		static const int options[] = {0, 1, 126, 139, 140, 1000, -1};
		for (size_t j = 0; j < COUNT(options); j++) {
			ERR(set_raw(fd, SOL_TIPC, options[j], &value, 4), EINVAL);
			ERR(get_raw(fd, SOL_TIPC, options[j], &value, &length), EINVAL);
		}
		ERR(set_raw(fd, IPPROTO_IP, 1, &value, 4), ENOPROTOOPT);
		ERR(get_raw(fd, IPPROTO_IP, 1, &value, &length), ENOPROTOOPT);
		ERR(set_raw(fd, IPPROTO_UDP, 1, &value, 4), ENOPROTOOPT);
		ERR(set_raw(fd, 999, 1, &value, 4), ENOPROTOOPT);
		ERR(set_raw(fd, SOL_SOCKET, 9999, &value, 4), ENOPROTOOPT);
		ERR(get_raw(fd, SOL_SOCKET, 9999, &value, &length), ENOPROTOOPT);
	}
}

static void tcp_options(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		int fd = a_socket(types[i]);
		uint32_t value = 1;
		socklen_t length = sizeof value;
		if (types[i] == SOCK_STREAM) {
			OK(set_raw(fd, IPPROTO_TCP, TCP_NODELAY, &value, 4));
			OK(set_raw(fd, IPPROTO_TCP, 12345, NULL, 0));
			OK(get_raw(fd, IPPROTO_TCP, TCP_NODELAY, &value, &length));
			EQ(length, 0);
		} else {
			ERR(set_raw(fd, IPPROTO_TCP, TCP_NODELAY, &value, 4), ENOPROTOOPT);
			ERR(get_raw(fd, IPPROTO_TCP, TCP_NODELAY, &value, &length), ENOPROTOOPT);
		}
	}
}

static void lengths(void)
{
	static const int settable[] = {TIPC_IMPORTANCE, TIPC_DEST_DROPPABLE, TIPC_CONN_TIMEOUT, TIPC_NODELAY};
	int fd = a_socket(SOCK_SEQPACKET);
	struct {
		uint32_t value;
		char rest[60];
	} room = {.value = 1};
	for (size_t i = 0; i < COUNT(settable); i++) {
		ERR(set_raw(fd, SOL_TIPC, settable[i], &room, 3), EINVAL);
		ERR(set_raw(fd, SOL_TIPC, settable[i], &room, 0), EINVAL);
		ERR(set_raw(fd, SOL_TIPC, settable[i], NULL, 4), EFAULT);
		OK(set_raw(fd, SOL_TIPC, settable[i], &room, sizeof room));
	}
	socklen_t length = 3;
	ERR(get_raw(fd, SOL_TIPC, TIPC_IMPORTANCE, &room, &length), EINVAL);
	length = sizeof room;
	OK(get_raw(fd, SOL_TIPC, TIPC_IMPORTANCE, &room, &length));
	EQ(length, 4);
	length = 4;
	ERR(get_raw(fd, SOL_TIPC, TIPC_IMPORTANCE, NULL, &length), EFAULT);
	ERR(get_raw(fd, SOL_TIPC, TIPC_IMPORTANCE, &room, NULL), EFAULT);
	ERR(set_raw(fd, SOL_SOCKET, SO_RCVBUF, &room, 3), EINVAL);
}

static void buffers(void)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		int fd = a_socket(types[i]), value = 50000;
		EQ(get_socket_option(fd, SO_RCVBUF), 2097152);
		IS(get_socket_option(fd, SO_SNDBUF) >= 4096);
		OK(set_raw(fd, SOL_SOCKET, SO_RCVBUF, &value, sizeof value));
		EQ(get_socket_option(fd, SO_RCVBUF), 100000);
		OK(set_raw(fd, SOL_SOCKET, SO_SNDBUF, &value, sizeof value));
		EQ(get_socket_option(fd, SO_SNDBUF), 100000);
		value = 1;
		OK(set_raw(fd, SOL_SOCKET, SO_RCVBUF, &value, sizeof value));
		int least = get_socket_option(fd, SO_RCVBUF);
		IS(least >= 256 && least < 5000);
		value = 100000000;
		OK(set_raw(fd, SOL_SOCKET, SO_RCVBUF, &value, sizeof value));
		EQ(get_socket_option(fd, SO_RCVBUF), 425984); /* twice net.core.rmem_max */
		value = 300000;
		if (set_raw(fd, SOL_SOCKET, SO_RCVBUFFORCE, &value, sizeof value) == 0) {
			EQ(get_socket_option(fd, SO_RCVBUF), 600000);
			OK(set_raw(fd, SOL_SOCKET, SO_SNDBUFFORCE, &value, sizeof value));
			EQ(get_socket_option(fd, SO_SNDBUF), 600000);
		} else {
			EQ(errno, EPERM); /* except with CAP_NET_ADMIN */
			ERR(set_raw(fd, SOL_SOCKET, SO_SNDBUFFORCE, &value, sizeof value), EPERM);
		}
		ERR(set_raw(fd, SOL_SOCKET, SO_PEEK_OFF, &value, sizeof value), EOPNOTSUPP);
		int groups[4];
		socklen_t length = sizeof groups;
		ERR(get_raw(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &length), ENODATA);
	}
}

static void queue_depth(void)
{
	Address name = service(a_type(), 1);
	int to = bound(SOCK_RDM, name), from = a_socket(SOCK_RDM);
	char text[1000] = "";
	for (uint32_t i = 1; i <= 3; i++) {
		EQ(sent_to(from, text, sizeof text, name), sizeof text);
		EQ(get_option(to, TIPC_SOCK_RECVQ_DEPTH), i);
		IS(get_option(to, TIPC_SOCK_RECVQ_USED) >= i * sizeof text);
	}
	EQ(recv(to, text, sizeof text, 0), sizeof text);
	EQ(get_option(to, TIPC_SOCK_RECVQ_DEPTH), 2);
	EQ(get_option(to, TIPC_NODE_RECVQ_DEPTH), 0);
	EQ(recv(to, text, sizeof text, 0), sizeof text);
	EQ(recv(to, text, sizeof text, 0), sizeof text);
	EQ(get_option(to, TIPC_SOCK_RECVQ_DEPTH), 0);
	EQ(get_option(to, TIPC_SOCK_RECVQ_USED), 0);
	/* Large messages, so that rings grow in between. */
	static char large[20000];
	for (uint32_t i = 1; i <= 10; i++) {
		EQ(sent_to(from, large, i * 2000, name), i * 2000);
		EQ(get_option(to, TIPC_SOCK_RECVQ_DEPTH), i);
	}
	IS(get_option(to, TIPC_SOCK_RECVQ_USED) >= 110000);
	for (uint32_t i = 1; i <= 10; i++) {
		EQ(recv(to, large, sizeof large, 0), i * 2000);
		EQ(get_option(to, TIPC_SOCK_RECVQ_DEPTH), 10 - i);
	}
	struct pair ends = connected(SOCK_SEQPACKET);
	for (uint32_t i = 1; i <= 3; i++)
		EQ(send(ends.client, text, sizeof text, 0), sizeof text);
	EQ(get_option(ends.server, TIPC_SOCK_RECVQ_DEPTH), 3);
}

static void timeouts(void)
{
	static const int options[] = {SO_RCVTIMEO, SO_SNDTIMEO};
	int fd = a_socket(SOCK_STREAM);
	for (size_t i = 0; i < COUNT(options); i++) {
		struct timeval time = {9, 9};
		socklen_t length = sizeof time;
		OK(get_raw(fd, SOL_SOCKET, options[i], &time, &length));
		EQ(length, sizeof time);
		EQ(time.tv_sec, 0);
		EQ(time.tv_usec, 0);
		time = (struct timeval){2, 500000};
		OK(set_raw(fd, SOL_SOCKET, options[i], &time, sizeof time));
		time = (struct timeval){0, 0};
		OK(get_raw(fd, SOL_SOCKET, options[i], &time, &length));
		EQ(time.tv_sec, 2);
		EQ(time.tv_usec, 500000);
		time = (struct timeval){0, 1000000};
		ERR(set_raw(fd, SOL_SOCKET, options[i], &time, sizeof time), EDOM);
		ERR(set_raw(fd, SOL_SOCKET, options[i], &time, 4), EINVAL);
	}
}

static void ordinary_options(void)
{
	/* General socket options that servers set routinely. */
	static const int flags[] = {SO_REUSEADDR, SO_KEEPALIVE, SO_BROADCAST, SO_OOBINLINE, SO_DONTROUTE, SO_TIMESTAMP};
	for (size_t i = 0; i < COUNT(types); i++) {
		int fd = a_socket(types[i]), on = 1, off = 0;
		for (size_t j = 0; j < COUNT(flags); j++) {
			EQ(get_socket_option(fd, flags[j]), 0);
			OK(set_raw(fd, SOL_SOCKET, flags[j], &on, sizeof on));
			EQ(get_socket_option(fd, flags[j]), 1);
			OK(set_raw(fd, SOL_SOCKET, flags[j], &off, sizeof off));
			EQ(get_socket_option(fd, flags[j]), 0);
		}
		ERR(set_raw(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on), EOPNOTSUPP);
		struct linger linger = {1, 5};
		socklen_t length = sizeof linger;
		OK(set_raw(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
		linger.l_linger = 0;
		OK(get_raw(fd, SOL_SOCKET, SO_LINGER, &linger, &length));
		EQ(linger.l_linger, 5);
		EQ(get_socket_option(fd, SO_RCVLOWAT), 1);
		EQ(get_socket_option(fd, SO_SNDLOWAT), 1);
		ERR(set_raw(fd, SOL_SOCKET, SO_SNDLOWAT, &on, sizeof on), ENOPROTOOPT);
		int priority = 5;
		OK(set_raw(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof priority));
		EQ(get_socket_option(fd, SO_PRIORITY), 5);
	}
}

static void what_it_is_cannot_be_set(void)
{
	static const int options[] = {SO_TYPE, SO_DOMAIN, SO_PROTOCOL, SO_ERROR};
	int fd = a_socket(SOCK_STREAM), value = 1;
	for (size_t i = 0; i < COUNT(options); i++)
		ERR(set_raw(fd, SOL_SOCKET, options[i], &value, sizeof value), ENOPROTOOPT);
	ERR(set_raw(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, sizeof value), ENOPROTOOPT);
}

const struct test_case option_cases[] = {
	{"option/defaults", "8.1, 8.9", defaults, false},
	{"option/importance", "8.9", importance, false},
	{"option/droppable", "8.9", droppable, false},
	{"option/connect-timeout", "8.9", connect_timeout, false},
	{"option/no-delay", "8.9", no_delay, false},
	{"option/read-only-and-write-only", "8.9", read_only_and_write_only, false},
	{"option/unknown", "8.9", unknown, false},
	{"option/of-tcp", "8.9", tcp_options, false},
	{"option/lengths", "8.9", lengths, false},
	{"option/buffers", "8.7", buffers, false},
	{"option/queue-depth", "8.9", queue_depth, false},
	{"option/timeouts", "socket(7)", timeouts, false},
	{"option/general", "socket(7)", ordinary_options, false},
	{"option/read-only-properties", "socket(7)", what_it_is_cannot_be_set, false},
	{NULL, NULL, NULL, false},
};

/* Messages to services, sockets and ranges; returned messages; errors. */
#include "check.h"
#include <fcntl.h>
#include <sys/uio.h>
#include <linux/tipc.h>

#define TYPE 7100

static void hello(void)
{
	struct tipc_addr service = { .type = TYPE, .instance = 17 }, from, to, own;
	char buffer[100];
	int err = 99;
	int server = open_socket(SOCK_RDM), client = open_socket(SOCK_RDM);

	CHECK(tipc_bind(server, TYPE, 17, 17, 0) == 0);
	CHECK(tipc_sendto(client, "Hello World", 11, &service) == 11);
	CHECK(tipc_recvfrom(server, buffer, sizeof(buffer), &from, &to, &err) == 11);
	CHECK(memcmp(buffer, "Hello World", 11) == 0 && err == 0);
	CHECK(tipc_sockaddr(client, &own) == 0);
	CHECK(from.type == 0 && from.instance == own.instance && from.node == tipc_own_node());
	CHECK(to.type == TYPE && to.instance == 17 && to.node == 0);

	/* A reply to the socket, not addressed to a service. */
	CHECK(tipc_sendto(server, "Uh ?", 4, &from) == 4);
	CHECK(tipc_recvfrom(client, buffer, sizeof(buffer), &from, &to, NULL) == 4);
	CHECK(tipc_sockid(server, &own) == 0 && from.instance == own.instance);
	CHECK(to.type == 0 && tipc_sockaddr(client, &own) == 0 && to.instance == own.instance);

	/* A default destination, and pointers that may be null. */
	CHECK(tipc_connect(client, &service) == 0);
	CHECK(tipc_send(client, "again", 5) == 5 && tipc_send(client, NULL, 0) == 0);
	CHECK(tipc_recvfrom(server, buffer, sizeof(buffer), NULL, NULL, NULL) == 5);
	/* Excess data is truncated; an empty message is never received, as on Linux. */
	CHECK(tipc_send(client, "again", 5) == 5 && tipc_send(client, "next", 4) == 4);
	CHECK(tipc_recv(server, buffer, 2, false) == 2 && tipc_recv(server, buffer, 9, false) == 4);
	CHECK(tipc_close(client) == 0 && tipc_close(server) == 0);
}

static void multicast(void)
{
	struct tipc_addr range = { .type = TYPE, .instance = 0, .node = 99 };
	struct tipc_addr single = { .type = TYPE, .instance = 20 }, to;
	char buffer[10];
	int stations[3], i;
	int sender = open_socket(SOCK_RDM);

	for (i = 0; i < 3; i++) {
		stations[i] = open_socket(SOCK_RDM);
		CHECK(tipc_bind(stations[i], TYPE, 10 * i, 10 * i, tipc_own_node()) == 0);
	}
	CHECK(tipc_mcast(sender, "all", 3, &range) == 3);
	CHECK(tipc_mcast(sender, "one", 3, &single) == 3);
	for (i = 0; i < 3; i++) {
		CHECK(tipc_recvfrom(stations[i], buffer, sizeof(buffer), NULL, &to, NULL) == 3);
		CHECK(memcmp(buffer, "all", 3) == 0 && to.type == TYPE && to.instance == 0 && to.node == 99);
	}
	CHECK(tipc_recv(stations[2], buffer, sizeof(buffer), false) == 3 && memcmp(buffer, "one", 3) == 0);
	for (i = 0; i < 2; i++) {
		CHECK(tipc_sock_non_block(stations[i]) == stations[i]);
		FAILS(tipc_recv(stations[i], buffer, sizeof(buffer), false), EAGAIN);
	}
	/* Bound with node scope; tipc_unbind need not know it. */
	CHECK(tipc_unbind(stations[0], TYPE, 0, 0) == 0);
	FAILS(tipc_unbind(stations[0], TYPE, 0, 0), EINVAL);
	for (i = 0; i < 3; i++)
		CHECK(tipc_close(stations[i]) == 0);
	CHECK(tipc_close(sender) == 0);
}

static void headers(void)
{
	struct sockaddr_tipc name = { .family = AF_TIPC, .addrtype = TIPC_SERVICE_ADDR };
	struct iovec parts[3] = { { "a ", 2 }, { NULL, 0 }, { "whole", 5 } };
	struct msghdr message = { .msg_name = &name, .msg_namelen = sizeof(name), .msg_iov = parts, .msg_iovlen = 3 };
	char buffer[10];
	int sd = open_socket(SOCK_RDM);

	name.addr.name.name.type = TYPE;
	name.addr.name.name.instance = 5;
	CHECK(tipc_bind(sd, TYPE, 5, 5, TIPC_NODE_SCOPE) == 0);
	CHECK(tipc_sendmsg(sd, &message) == 7);
	CHECK(tipc_recv(sd, buffer, sizeof(buffer), false) == 7 && memcmp(buffer, "a whole", 7) == 0);
	message.msg_namelen = 4;
	FAILS(tipc_sendmsg(sd, &message), EINVAL);
	message.msg_name = NULL;
	message.msg_namelen = 0;
	FAILS(tipc_sendmsg(sd, &message), EDESTADDRREQ);
	FAILS(tipc_sendmsg(sd, NULL), EFAULT);
	CHECK(tipc_close(sd) == 0);
}

static void returned(void)
{
	struct tipc_addr gone, from;
	char buffer[100];
	int err = 0;
	int sd = open_socket(SOCK_RDM), other = open_socket(SOCK_RDM);

	CHECK(tipc_sockaddr(other, &gone) == 0 && tipc_close(other) == 0);
	CHECK(tipc_sock_rejectable(sd) == 0);
	CHECK(tipc_sendto(sd, "to gone!", 8, &gone) == 8);
	CHECK(wait_for(sd, POLLIN) & POLLIN);
	CHECK(tipc_recvfrom(sd, buffer, sizeof(buffer), &from, NULL, &err) == 8);
	CHECK(err == TIPC_ERR_NO_PORT && memcmp(buffer, "to gone!", 8) == 0);
	CHECK(tipc_sockaddr(sd, &gone) == 0 && from.instance == gone.instance);
	/* Without err, no data is returned. */
	gone.instance = 1;
	CHECK(tipc_sendto(sd, "to gone!", 8, &gone) == 8);
	CHECK(tipc_recvfrom(sd, buffer, sizeof(buffer), NULL, NULL, NULL) == 0);
	CHECK(tipc_close(sd) == 0);
}

static void refused(void)
{
	static char large[66001];
	struct tipc_addr unbound = { .type = TYPE, .instance = 4711 }, addr;
	char buffer[10];
	int file, sd = open_socket(SOCK_RDM);

	FAILS(tipc_socket(SOCK_RAW), EPROTOTYPE);
	FAILS(tipc_bind(sd, 7, 1, 1, 0), EACCES);
	FAILS(tipc_bind(sd, TYPE, 2, 1, 0), EINVAL);
	FAILS(tipc_bind(sd, TYPE, 1, 1, 0xdeadbeef), EINVAL);
	FAILS(tipc_sendto(sd, "x", 1, &unbound), EHOSTUNREACH);
	FAILS(tipc_sendto(sd, large, sizeof(large), &unbound), EMSGSIZE);
	FAILS(tipc_send(sd, "x", 1), EDESTADDRREQ);
	FAILS(tipc_send(sd, NULL, 1), EFAULT);
	FAILS(tipc_mcast(sd, "x", 1, NULL), EFAULT);
	FAILS(tipc_recv(sd, NULL, 1, false), EFAULT);
	FAILS(tipc_recv(sd, buffer, 0, false), EINVAL);
	FAILS(tipc_connect(sd, NULL), EFAULT);
	FAILS(tipc_sockaddr(sd, NULL), EFAULT);
	FAILS(tipc_listen(sd, 1), EOPNOTSUPP);
	FAILS(tipc_accept(sd, NULL), EINVAL);
	FAILS(tipc_sock_importance(sd, 4), EINVAL);
	CHECK(tipc_sock_importance(sd, 3) == 0);
	FAILS(utipc_sock_connect_timeout(sd, 70000), EINVAL);
	FAILS(utipc_sock_connect_timeout(sd, 65536), EINVAL);
	FAILS(utipc_sock_connect_timeout(sd, 0), EINVAL);
	FAILS(utipc_sock_connect_timeout(sd, -1), EINVAL);
	CHECK(utipc_sock_connect_timeout(sd, 65535) == 0);
	FAILS(utipc_sock_nodelay(sd, true), ENOPROTOOPT);
	FAILS(utipc_peeraddr(sd, &addr), ENOTCONN);
	CHECK(utipc_sock_timeout(sd, 5, 5) == 0);
	FAILS(tipc_recv(sd, buffer, 1, false), EAGAIN);
	CHECK(tipc_close(sd) == 0);

	/* Descriptors that are closed, invalid, or not sockets of the library. */
	FAILS(tipc_send(sd, "x", 1), EBADF);
	FAILS(tipc_close(sd), EBADF);
	FAILS(tipc_close(-1), EBADF);
	FAILS(tipc_send(1 << 30, "x", 1), EBADF);
	file = open("/dev/null", O_RDWR);
	FAILS(tipc_send(file, "x", 1), ENOTSOCK);
	FAILS(tipc_close(file), ENOTSOCK);
	CHECK(close(file) == 0);
}

/* Closing a socket with close does not affect the next file with its number. */
static void closed_with_close(void)
{
	struct tipc_addr addr = { .type = TYPE, .instance = 30 };
	int file, again, sd = open_socket(SOCK_RDM);

	CHECK(close(sd) == 0);
	file = open("/dev/null", O_RDWR);
	CHECK(file == sd);
	FAILS(tipc_close(sd), ENOTSOCK);
	CHECK(fcntl(file, F_GETFD) >= 0 && close(file) == 0);

	/* The socket itself stays open until tipc_close, which reports that the descriptor is gone. */
	sd = open_socket(SOCK_RDM);
	again = open_socket(SOCK_RDM);
	CHECK(tipc_bind(sd, TYPE, 30, 30, 0) == 0 && close(sd) == 0);
	CHECK(tipc_sendto(again, "x", 1, &addr) == 1);
	FAILS(tipc_close(sd), EBADF);
	FAILS(tipc_sendto(again, "x", 1, &addr), EHOSTUNREACH);
	CHECK(tipc_close(again) == 0);
}

static void text(void)
{
	struct tipc_addr addr = { .type = 18888, .instance = 17, .node = 0x1001001 }, back;
	char buffer[40];

	CHECK(strcmp(tipc_ntoa(&addr, buffer, sizeof(buffer)), "18888:17@1001001") == 0);
	CHECK(tipc_aton(buffer, &back) == 1);
	CHECK(back.type == 18888 && back.instance == 17 && back.node == 0x1001001);
	CHECK(strcmp(tipc_rtoa(1, 2, 3, 0, buffer, sizeof(buffer)), "1:2:3@0") == 0);
	CHECK(strcmp(tipc_dtoa(0x1001001, buffer, sizeof(buffer)), "1.1.1") == 0);
	CHECK(tipc_aton("64:7@1.1.1", &back) == 1 && back.node == 0x1001001);
	CHECK(tipc_aton("sixty-four", &back) == 0 && errno == EINVAL);
	CHECK(tipc_aton(NULL, &back) == 0 && tipc_ntoa(&addr, NULL, 9) == NULL);
	CHECK(tipc_linkname(buffer, sizeof(buffer), 0x1001001, 0) == buffer && buffer[0] == 0);
	CHECK(strlen(utipc_version()) > 0);
}

int main(void)
{
	hello();
	multicast();
	headers();
	returned();
	refused();
	closed_with_close();
	text();
	printf("ok\n");
	return 0;
}

/* Events of services, nodes and links. */
#include "check.h"
#include <linux/tipc.h>

#define TYPE 7300

static void services(void)
{
	struct tipc_addr srv, port, own;
	struct tipc_addr wanted = { .type = TYPE, .instance = 5 };
	bool up = false, expired = true;
	int server = open_socket(SOCK_RDM), other = open_socket(SOCK_RDM), another = open_socket(SOCK_RDM);
	int sd = tipc_topsrv_conn(0);

	CHECK(sd >= 0 && utipc_sock_timeout(sd, 60000, -1) == 0);
	CHECK(tipc_srv_subscr(sd, TYPE, 0, ~0u, true, -1) == 0);
	CHECK((polled(sd) & POLLIN) == 0);
	CHECK(tipc_bind(server, TYPE, 5, 5, 0) == 0);
	CHECK(wait_for(sd, POLLIN) & POLLIN);
	CHECK(tipc_srv_evt(sd, &srv, &port, &up, &expired) == 0);
	CHECK(up && !expired && srv.type == TYPE && srv.instance == 5 && srv.node == tipc_own_node());
	CHECK(tipc_sockaddr(server, &own) == 0 && port.type == 0 && port.instance == own.instance);
	CHECK(tipc_srv_wait(&wanted, -1) && tipc_srv_wait(&wanted, 0));
	wanted.node = tipc_own_node();
	CHECK(tipc_srv_wait(&wanted, 1000));

	CHECK(tipc_close(server) == 0);
	CHECK(tipc_srv_evt(sd, NULL, NULL, &up, NULL) == 0 && !up);
	CHECK(!tipc_srv_wait(&wanted, 20) && errno == ETIMEDOUT);
	CHECK(!tipc_srv_wait(NULL, 20) && errno == EFAULT);

	/* Only the first of two equal bindings is reported; the subscription expires. */
	CHECK(tipc_close(sd) == 0);
	sd = tipc_topsrv_conn(0);
	CHECK(tipc_srv_subscr(sd, TYPE, 1, 9, false, 300) == 0);
	CHECK(tipc_bind(other, TYPE, 1, 1, 0) == 0 && tipc_bind(another, TYPE, 1, 1, 0) == 0);
	CHECK(tipc_srv_evt(sd, &srv, NULL, &up, &expired) == 0 && up && !expired && srv.instance == 1);
	CHECK(tipc_srv_evt(sd, &srv, NULL, &up, &expired) == 0 && expired);
	CHECK(tipc_close(sd) == 0 && tipc_close(other) == 0 && tipc_close(another) == 0);
}

static void exclusive(void)
{
	int first = open_socket(SOCK_RDM), second = open_socket(SOCK_RDM);

	CHECK(utipc_bind_exclusive(first, TYPE + 1, 5, 9, 0, 60000) == 0);
	CHECK(utipc_barrier(60000) == 0 && utipc_barrier(-1) == 0);
	FAILS(utipc_bind_exclusive(second, TYPE + 1, 9, 20, 0, -1), EADDRINUSE);
	FAILS(utipc_bind_exclusive(second, TYPE + 1, 2, 1, 0, 60000), EINVAL);
	FAILS(utipc_bind_exclusive(-1, TYPE + 1, 1, 1, 0, 60000), EBADF);
	CHECK(utipc_bind_exclusive(second, TYPE + 1, 10, 20, tipc_own_node(), 60000) == 0);
	CHECK(tipc_close(first) == 0);
	CHECK(utipc_bind_exclusive(second, TYPE + 1, 5, 9, 0, 60000) == 0);
	CHECK(tipc_close(second) == 0);
}

/* With the structures of linux/tipc.h, for programs that speak the server's protocol themselves. */
static void raw(void)
{
	struct tipc_subscr subscription = {
		.seq = { .type = TYPE, .lower = 0, .upper = 9 },
		.timeout = 0,
		.filter = TIPC_SUB_SERVICE,
		.usr_handle = "mine",
	};
	struct tipc_event event;
	int sd = tipc_topsrv_conn(0);

	CHECK(tipc_send(sd, &subscription, sizeof(subscription)) == sizeof(subscription));
	CHECK(tipc_recv(sd, &event, sizeof(event), false) == sizeof(event));
	CHECK(event.event == TIPC_SUBSCR_TIMEOUT && memcmp(event.s.usr_handle, "mine", 5) == 0);
	CHECK(tipc_close(sd) == 0);
}

static void neighbours(void)
{
	struct tipc_addr elsewhere = { .type = TYPE, .instance = 1, .node = 0x123 };
	uint32_t node = 0;
	bool up = false;
	int sd = tipc_neigh_subscr(0);

	/* One of them is this process's node. */
	CHECK(sd >= 0 && utipc_sock_timeout(sd, 60000, -1) == 0);
	CHECK(tipc_neigh_evt(sd, &node, &up) == 0 && up && node == tipc_own_node());
	CHECK(tipc_neigh_subscr(0x123) == -1 && errno == EHOSTUNREACH);
	CHECK(!tipc_srv_wait(&elsewhere, 10) && errno == ETIMEDOUT);
	CHECK(tipc_close(sd) == 0);

	sd = tipc_link_subscr(0);
	CHECK(sd >= 0 && tipc_sock_non_block(sd) == sd);
	FAILS(tipc_link_evt(sd, &node, &up, NULL, NULL), EAGAIN);
	CHECK(tipc_close(sd) == 0);
	sd = open_socket(SOCK_RDM);
	FAILS(tipc_srv_subscr(sd, TYPE, 0, 9, true, -1), EDESTADDRREQ);
	CHECK(tipc_close(sd) == 0);
}

int main(void)
{
	services();
	raw();
	exclusive();
	neighbours();
	printf("ok\n");
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * libutipc: TIPC in user space. The functions tipc_* have the names, parameters and semantics of TIPC's own tipcc.h;
 * those that begin with utipc_ are additions. Manual: utipc(7), with one page for each group of functions in section 3.
 *
 * A socket is an int for poll, select and epoll. Close it with tipc_close; do not use it with read, write or other
 * calls. Unless stated otherwise, functions return -1 and set errno on failure; utipc_strerror gives the reason and the
 * remedy. All functions are thread-safe.
 */
#ifndef UTIPC_H
#define UTIPC_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Addresses --------------------------------------------------------------------------------------------------- */

/* A node address; 0 for all nodes, or any. */
typedef uint32_t tipc_domain_t;

/*
 * A service address {type, instance}, on one node or, with node 0, wherever it is bound. With type 0, a socket address:
 * the port in instance, and its node.
 */
struct tipc_addr {
	uint32_t type;
	uint32_t instance;
#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L || defined(__GNUC__)
	__extension__ union {
		uint32_t node;
		tipc_domain_t domain; /* its older name */
	};
#else
	uint32_t node;
#endif
	uint32_t scope; /* unused */
};

/* Address of this process's node, 0 if it has none. Starts the node if necessary. */
uint32_t tipc_own_node(void);
/* The cluster and zone of this process's node, for addresses of the form zone.cluster.node. */
tipc_domain_t tipc_own_cluster(void);
tipc_domain_t tipc_own_zone(void);
/* A free port number; for programs that know this function from tipcc.h. */
uint32_t tipc_own_socket(void);

/*
 * Address to text: "type:instance@node" (node in hex), "type:lower:upper@node", "zone.cluster.node". They return buf;
 * text is truncated to len bytes including the final zero.
 */
char *tipc_ntoa(const struct tipc_addr *addr, char *buf, size_t len);
char *tipc_rtoa(uint32_t type, uint32_t lower, uint32_t upper, uint32_t node, char *buf, size_t len);
char *tipc_dtoa(tipc_domain_t domain, char *buf, size_t len);
/* Text to address: "type:instance", optionally with "@node" in hex or as zone.cluster.node. Returns 1, or 0 if it is
 * invalid. */
int tipc_aton(const char *text, struct tipc_addr *addr);

/* ---- Sockets ----------------------------------------------------------------------------------------------------- */

/* sk_type: SOCK_RDM, SOCK_DGRAM, SOCK_SEQPACKET or SOCK_STREAM, optionally with SOCK_NONBLOCK. Always close-on-exec. */
int tipc_socket(int sk_type);
/* Makes calls fail with EAGAIN (tipc_connect: EINPROGRESS) instead of waiting. Returns sd. */
int tipc_sock_non_block(int sd);
/* Makes the node return undeliverable messages; see tipc_recvfrom. */
int tipc_sock_rejectable(int sd);
/* Sets the importance, 0 (low) to 3 (critical): less important messages wait first under congestion. */
int tipc_sock_importance(int sd, uint32_t priority);
/* Sets how long receive and accept, and send, wait, in ms; negative (default): no limit. On timeout: EAGAIN. */
int utipc_sock_timeout(int sd, int receive_ms, int send_ms);
/* Sets how long connect waits, 1 to 65535 ms; 8000 by default. On timeout: ETIMEDOUT. */
int utipc_sock_connect_timeout(int sd, int ms);
/* SOCK_STREAM: sends small writes at once. Other types: ENOPROTOOPT. */
int utipc_sock_nodelay(int sd, bool nodelay);

int tipc_close(int sd);
/* Shuts a connection down in order: the peer reads everything that was sent, then the end. */
int utipc_shutdown(int sd);

/* The socket's own address and its peer's. */
int tipc_sockaddr(int sd, struct tipc_addr *addr);
int tipc_sockid(int sd, struct tipc_addr *id); /* the older name */
int utipc_peeraddr(int sd, struct tipc_addr *addr);

/* scope: 0 for the whole cluster, tipc_own_node() for this process's node only. A socket may have many bindings. */
int tipc_bind(int sd, uint32_t type, uint32_t lower, uint32_t upper, uint32_t scope);
int tipc_unbind(int sd, uint32_t type, uint32_t lower, uint32_t upper);
/*
 * Binds a socket to a range to which no socket is bound. Of all programs that do so, on any nodes in contact, at most
 * one succeeds; the others fail with EADDRINUSE, or with EAGAIN after timeout_ms (-1: no limit). tipc_bind does not
 * ask.
 */
int utipc_bind_exclusive(int sd, uint32_t type, uint32_t lower, uint32_t upper, uint32_t scope, int timeout_ms);
/* Waits until every node in contact has the bindings that this process's node has now; EAGAIN after timeout_ms. */
int utipc_barrier(int timeout_ms);

/* Connects to a server. On SOCK_RDM and SOCK_DGRAM it sets the destination of tipc_send. */
int tipc_connect(int sd, const struct tipc_addr *dst);
/* Result of a non-blocking tipc_connect, once the socket is writable. 1: connected, 0: not yet, -1: failed. */
int utipc_connected(int sd);
int tipc_listen(int sd, int backlog);
/* Returns the connection's socket; src receives the peer's address unless NULL. */
int tipc_accept(int sd, struct tipc_addr *src);

/*
 * Communication groups: members, on any nodes, send to one another in order and with flow control. A socket of type
 * SOCK_RDM or SOCK_DGRAM joins the group member->type (64 or more) with member->instance, which several members may
 * share. member->node: 0 for a group of the cluster, tipc_own_node() for one of this process's node. events: report
 * members that join and leave. loopback: the socket gets its own messages too. In a group
 *   tipc_send     sends to all members
 *   tipc_sendto   sends to one member with that instance, the least loaded; to a socket address, to that member
 *   tipc_mcast    sends to all members with dst->instance
 * They wait, or fail with EAGAIN, while a member does not read; they fail with EHOSTUNREACH if no member matches. A
 * socket is in one group, binds and connects to nothing else, and hears only members.
 */
int tipc_join(int sd, struct tipc_addr *member, bool events, bool loopback);
int tipc_leave(int sd);

/* What a send does when a member that does not read has no window left. */
enum {
	UTIPC_SLOW_WAIT = 0,     /* it waits */
	UTIPC_SLOW_DROP = 1,     /* this member does not get the message */
	UTIPC_SLOW_CONFLATE = 2, /* this member gets the newest message of each key later */
	UTIPC_SLOW_EVICT = 3     /* it waits; a member that holds it up for evict_after_ms is evicted */
};

/* Policy of a member, for what it sends; the others do not know it. Set unused values to 0. */
struct utipc_group_policy {
	uint32_t slow;
	uint32_t keys;           /* UTIPC_SLOW_CONFLATE: most messages kept for one member, up to 65536; 0: 1024 */
	uint32_t bytes;          /* and maximum memory of them, up to 64 MiB; 0: 1 MiB */
	uint32_t evict_after_ms; /* UTIPC_SLOW_EVICT: 1 to 3600000 */
	/* 1: sends wait for sockets that are bound to the group's type and never join, as after tipc_join */
	uint32_t wait_for_bindings;
};

/*
 * As tipc_join, with a policy; NULL: as tipc_join. A socket that was evicted gets an event (see utipc_recvgroup), and
 * its sends fail with ECONNABORTED until it leaves and joins again. ENOTSUP on the kernel engine.
 */
int utipc_join(int sd, const struct tipc_addr *member, bool events, bool loopback,
	       const struct utipc_group_policy *policy);
/* As tipc_sendto (dst NULL: tipc_send) and tipc_mcast, with a key for UTIPC_SLOW_CONFLATE; other calls use key 0. */
int utipc_send_keyed(int sd, const void *msg, size_t len, const struct tipc_addr *dst, uint64_t key);
int utipc_mcast_keyed(int sd, const void *msg, size_t len, const struct tipc_addr *dst, uint64_t key);
/* Messages that a slow member, a socket address, has missed: dropped, replaced, and waiting for it now. */
int utipc_slow_member(int sd, const struct tipc_addr *member, uint64_t *dropped, uint64_t *conflated, uint32_t *kept);

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

/*
 * At most 66000 bytes, except on SOCK_STREAM. Return the number of bytes sent. On an unconnected SOCK_SEQPACKET or
 * SOCK_STREAM socket, tipc_sendto requests a connection, with this as its first message.
 */
int tipc_send(int sd, const void *msg, size_t len);
int tipc_sendto(int sd, const void *msg, size_t len, const struct tipc_addr *dst);
/* msg_name is a struct sockaddr_tipc, or NULL. */
int tipc_sendmsg(int sd, const struct msghdr *msg);
/* Sends to every socket bound to dst->type from dst->instance to dst->node; to one instance if node is less than it. */
int tipc_mcast(int sd, const void *msg, size_t len, const struct tipc_addr *dst);

/*
 * Return the number of bytes received; 0 is the end of a connection. waitall: fill the buffer (SOCK_STREAM).
 * tipc_recvfrom also stores:
 *   socket  the sender; for a returned message this socket
 *   member  the addressed service; for a multicast the range, as in tipc_mcast; this socket if no service was addressed
 *   err     0, or for a returned message of this socket the reason: 1 not bound, 2 no such socket, 3 node lost,
 *           4 queue full, 5 connection closed; buf then has the start of that message
 * In a group member is the sender as a member, with node 0. A member's joining returns 0 bytes and err 0, its leaving 0
 * bytes and err -1. Each pointer but buf may be NULL. Without err, a returned message counts as 0 bytes.
 */
int tipc_recv(int sd, void *buf, size_t len, bool waitall);
int tipc_recvfrom(int sd, void *buf, size_t len, struct tipc_addr *socket, struct tipc_addr *member, int *err);

/* What utipc_recvgroup has received. */
enum {
	UTIPC_NOT_OF_GROUP = 0,     /* a message from before the join */
	UTIPC_SENT_TO_MEMBER = 1,   /* a message to this member alone */
	UTIPC_SENT_TO_INSTANCE = 2, /* to all members with this one's instance */
	UTIPC_SENT_TO_ALL = 3,      /* to all members */
	UTIPC_SENT_TO_UNKNOWN = 4,  /* a message; the kernel engine does not tell to whom */
	UTIPC_MEMBER_JOINED = 5,
	UTIPC_MEMBER_LEFT = 6,
	UTIPC_MEMBER_EVICTED = 7    /* it held others up; this socket, if socket is its own address */
};

struct utipc_group_info {
	uint32_t kind;
	uint32_t after_loss; /* 1: earlier messages of the member were dropped or replaced; with utipc_join only */
};

/*
 * As tipc_recvfrom, for a socket in a group; info also tells to whom a message was sent. The event that a member has
 * joined, left or was evicted returns 0 bytes.
 */
int utipc_recvgroup(int sd, void *buf, size_t len, struct tipc_addr *socket, struct tipc_addr *member,
		    struct utipc_group_info *info);
/*
 * Why a call on the socket would wait now, or waits in another thread: 1, the text in buf, truncated to len bytes
 * including the final zero, and in member the socket address of the member that a send in a group waits for, or zeros.
 * 0 if it would not wait. buf (with len 0) and member may be NULL.
 */
int utipc_wait_reason(int sd, char *buf, size_t len, struct tipc_addr *member);

/* ---- Event loops ------------------------------------------------------------------------------------------------- */

/*
 * As poll(2) and epoll_wait(2), but before they sleep they check the sockets received from lately for messages, for
 * at most 50 us and only while that has paid: a message that comes within microseconds costs no wake-up. Any
 * descriptors may be in the set. UTIPC_SPIN=parked in the environment switches it off. poll, select and epoll_wait
 * work too, without this busy poll.
 */
int utipc_poll(struct pollfd *fds, nfds_t nfds, int timeout);
int utipc_epoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);

/* ---- Topology ---------------------------------------------------------------------------------------------------- */

/* Connects to the topology server of a node (0: of this process); the socket becomes readable with each event. */
int tipc_topsrv_conn(uint32_t topsrv_node);
/*
 * Subscribes to a service range. all: report every binding, otherwise only the first and the last of the range. expire:
 * time limit in ms, negative for none.
 */
int tipc_srv_subscr(int sd, uint32_t type, uint32_t lower, uint32_t upper, bool all, int expire);
/*
 * Receives the next event. srv: the service and its node; addr: the socket that bound it; up: bound or withdrawn;
 * expired: the subscription has ended. Each pointer may be NULL.
 */
int tipc_srv_evt(int sd, struct tipc_addr *srv, struct tipc_addr *addr, bool *up, bool *expired);
/* Waits until srv is bound, on srv->node unless that is 0; expire as above. */
bool tipc_srv_wait(const struct tipc_addr *srv, int expire);

/* Subscribes to the nodes that a node sees, including itself. */
int tipc_neigh_subscr(uint32_t topsrv_node);
int tipc_neigh_evt(int sd, uint32_t *neigh_node, bool *up);

/* Subscribes to the links of a node. */
int tipc_link_subscr(uint32_t topsrv_node);
int tipc_link_evt(int sd, uint32_t *neigh_node, bool *up, int *local_bearerid, int *remote_bearerid);
/* The name of a link of this process's node; empty if it does not exist. Returns buf. */
char *tipc_linkname(char *buf, size_t len, uint32_t peer, int bearerid);

/* ---- The library ------------------------------------------------------------------------------------------------- */

/* Reason and remedy of this thread's last failed call; valid until the next failure. */
const char *utipc_strerror(void);
const char *utipc_version(void);
/*
 * Closes all sockets and leaves the cluster, as exit(3) does; for a process that ends without it. No other thread may
 * be in a call. The next tipc_socket starts a node again.
 */
void utipc_leave(void);

#ifdef __cplusplus
}
#endif

#endif

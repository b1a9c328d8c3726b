/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * libutipc: TIPC in user space. The functions tipc_* have the names, the parameters and the meaning of TIPC's own tipcc.h;
 * those that begin with utipc_ are additions. Manual: utipc(7), one page for each group of functions in section 3.
 *
 * A socket is an int that poll, select and epoll take, and that tipc_close closes; it is not to be read or written by other
 * calls than these. Unless said otherwise a function yields -1 and sets errno when it fails; utipc_strerror says why, and
 * what to do. All of them may be called by any thread at any time.
 */
#ifndef UTIPC_H
#define UTIPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Addresses --------------------------------------------------------------------------------------------------- */

/* The number of a node; 0 for all nodes, or any. */
typedef uint32_t tipc_domain_t;

/*
 * A service address {type, instance}, on one node or (0) wherever it is bound. With type 0 the address of a socket: its port
 * in instance, and its node.
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
	uint32_t scope; /* not used */
};

/* Own node, as others see it; 0 if there is none. Starts it, about a second without a daemon. */
uint32_t tipc_own_node(void);
/* Its cluster and its zone, where addresses have the form zone.cluster.node. */
tipc_domain_t tipc_own_cluster(void);
tipc_domain_t tipc_own_zone(void);
/* A port number that was free; for programs that know it from tipcc.h. */
uint32_t tipc_own_socket(void);

/*
 * Text: "type:instance@node" (node in hex), "type:lower:upper@node", "zone.cluster.node". They yield buf; what does not fit
 * into len bytes with its final zero is cut off.
 */
char *tipc_ntoa(const struct tipc_addr *addr, char *buf, size_t len);
char *tipc_rtoa(uint32_t type, uint32_t lower, uint32_t upper, uint32_t node, char *buf, size_t len);
char *tipc_dtoa(tipc_domain_t domain, char *buf, size_t len);
/* Text to address: "type:instance", or with "@node" in hex or as zone.cluster.node. 1, or 0 if it is none. */
int tipc_aton(const char *text, struct tipc_addr *addr);

/* ---- Sockets ----------------------------------------------------------------------------------------------------- */

/* SOCK_RDM, SOCK_DGRAM, SOCK_SEQPACKET or SOCK_STREAM, or'ed with SOCK_NONBLOCK if wanted; closed by exec in any case. */
int tipc_socket(int sk_type);
/* Calls fail with EAGAIN (a connect: EINPROGRESS) instead of waiting. Yields sd. */
int tipc_sock_non_block(int sd);
/* Messages that cannot be delivered come back; see tipc_recvfrom. */
int tipc_sock_rejectable(int sd);
/* 0 low to 3 critical: what yields first under congestion. */
int tipc_sock_importance(int sd, uint32_t priority);
/* How long receives and accepts, and sends wait, ms; for ever if negative, which is the default. Then: EAGAIN. */
int utipc_sock_timeout(int sd, int receive_ms, int send_ms);
/* How long a connect waits, ms; 8000 by default. Then: ETIMEDOUT. */
int utipc_sock_connect_timeout(int sd, int ms);
/* SOCK_STREAM: small writes leave at once. */
int utipc_sock_nodelay(int sd, bool nodelay);

int tipc_close(int sd);
/* Ends a connection in good order: the peer reads what was sent, then the end. */
int utipc_shutdown(int sd);

/* The socket's own address, and its peer's. */
int tipc_sockaddr(int sd, struct tipc_addr *addr);
int tipc_sockid(int sd, struct tipc_addr *id); /* the older name */
int utipc_peeraddr(int sd, struct tipc_addr *addr);

/* scope: 0 for the whole cluster, tipc_own_node() for this node alone. A socket may have many bindings. */
int tipc_bind(int sd, uint32_t type, uint32_t lower, uint32_t upper, uint32_t scope);
int tipc_unbind(int sd, uint32_t type, uint32_t lower, uint32_t upper);

/* On SOCK_RDM and SOCK_DGRAM it sets where tipc_send sends. */
int tipc_connect(int sd, const struct tipc_addr *dst);
/* 1: connected, 0: not yet, -1: why not; for sockets that do not block, when they have become writable. */
int utipc_connected(int sd);
int tipc_listen(int sd, int backlog);
/* Yields the connection's socket; src: who asked, or NULL. */
int tipc_accept(int sd, struct tipc_addr *src);

/* Communication groups: not there yet, EOPNOTSUPP. */
int tipc_join(int sd, struct tipc_addr *member, bool events, bool loopback);
int tipc_leave(int sd);

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

/*
 * At most 66000 bytes, except on SOCK_STREAM. They yield the number of bytes sent.
 * tipc_sendto on a socket for connections that is not connected asks for one, whose first message this is.
 */
int tipc_send(int sd, const void *msg, size_t len);
int tipc_sendto(int sd, const void *msg, size_t len, const struct tipc_addr *dst);
/* msg_name is a struct sockaddr_tipc, or NULL. */
int tipc_sendmsg(int sd, const struct msghdr *msg);
/* To every socket bound to dst->type in dst->instance to dst->node; to the one instance if node is below it. */
int tipc_mcast(int sd, const void *msg, size_t len, const struct tipc_addr *dst);

/*
 * They yield the number of bytes received; 0 is the end of a connection. waitall: fill the buffer (SOCK_STREAM).
 * tipc_recvfrom says who sent it (socket), which service was addressed (member; of a multicast the range, as in tipc_mcast;
 * if none was, this socket), and in *err why an own message came back: 1 nobody bound, 2 no such socket, 3 node lost, 4 queue
 * full, 5 connection closed; its start is in buf then. Each pointer but buf may be NULL; without err a message that came
 * back yields 0.
 */
int tipc_recv(int sd, void *buf, size_t len, bool waitall);
int tipc_recvfrom(int sd, void *buf, size_t len, struct tipc_addr *socket, struct tipc_addr *member, int *err);

/* ---- Topology ---------------------------------------------------------------------------------------------------- */

/* A connection to the topology server of a node, 0 for the own one: a socket that becomes readable with each event. */
int tipc_topsrv_conn(uint32_t topsrv_node);
/* all: every binding, else of each range the first and the last. expire: ms, for ever if negative. */
int tipc_srv_subscr(int sd, uint32_t type, uint32_t lower, uint32_t upper, bool all, int expire);
/* srv: service and its node, addr: the socket that bound it. Each pointer may be NULL. */
int tipc_srv_evt(int sd, struct tipc_addr *srv, struct tipc_addr *addr, bool *up, bool *expired);
/* Waits until somebody has bound srv, on srv->node if that is not 0; expire as above. */
bool tipc_srv_wait(const struct tipc_addr *srv, int expire);

/* The nodes that a node sees, itself included. */
int tipc_neigh_subscr(uint32_t topsrv_node);
int tipc_neigh_evt(int sd, uint32_t *neigh_node, bool *up);

/* The links of a node. */
int tipc_link_subscr(uint32_t topsrv_node);
int tipc_link_evt(int sd, uint32_t *neigh_node, bool *up, int *local_bearerid, int *remote_bearerid);
/* Name of an own link; empty if there is none. Yields buf. */
char *tipc_linkname(char *buf, size_t len, uint32_t peer, int bearerid);

/* ---- The library ------------------------------------------------------------------------------------------------- */

/* Why the last call of this thread that failed did, and what to do; stays until the next one fails. */
const char *utipc_strerror(void);
const char *utipc_version(void);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Compatibility with programs written for TIPC's own tipcc.h: the same functions and the definitions they rely on. */
#ifndef UTIPC_TIPCC_H
#define UTIPC_TIPCC_H

#include <utipc.h>

#if defined(__has_include)
#if __has_include(<linux/tipc.h>)
#include <linux/tipc.h>
#endif
#endif

/* Without linux/tipc.h: its definitions that such programs use. */
#ifndef TIPC_RESERVED_TYPES
#define TIPC_NODE_STATE 0
#define TIPC_TOP_SRV 1
#define TIPC_LINK_STATE 2
#define TIPC_RESERVED_TYPES 64
#define TIPC_CLUSTER_SCOPE 2
#define TIPC_NODE_SCOPE 3
#define TIPC_MAX_USER_MSG_SIZE 66000
#define TIPC_LOW_IMPORTANCE 0
#define TIPC_MEDIUM_IMPORTANCE 1
#define TIPC_HIGH_IMPORTANCE 2
#define TIPC_CRITICAL_IMPORTANCE 3
#define TIPC_OK 0
#define TIPC_ERR_NO_NAME 1
#define TIPC_ERR_NO_PORT 2
#define TIPC_ERR_NO_NODE 3
#define TIPC_ERR_OVERLOAD 4
#define TIPC_CONN_SHUTDOWN 5
#define TIPC_WAIT_FOREVER (~0u)

static inline unsigned int tipc_zone(tipc_domain_t domain)
{
	return domain >> 24;
}

static inline unsigned int tipc_cluster(tipc_domain_t domain)
{
	return (domain >> 12) & 0xfffu;
}

static inline unsigned int tipc_node(tipc_domain_t domain)
{
	return domain & 0xfffu;
}
#endif
#ifndef TIPC_CFG_SRV
#define TIPC_CFG_SRV 0
#endif
#ifndef TIPC_ZONE_SCOPE
#define TIPC_ZONE_SCOPE 1
#endif

static inline tipc_domain_t tipc_domain(unsigned int zone, unsigned int cluster, unsigned int node)
{
	return (zone << 24) | (cluster << 12) | node;
}

/* The older tipc_srv_evt(sd, srv, up, expired) without the socket of an event. */
static inline int tipcc_srv_evt(int sd, struct tipc_addr *srv, bool *up, bool *expired)
{
	return tipc_srv_evt(sd, srv, NULL, up, expired);
}
#define TIPCC_SIXTH(a, b, c, d, e, f, ...) f
#define tipc_srv_evt(...) TIPCC_SIXTH(__VA_ARGS__, (tipc_srv_evt), tipcc_srv_evt, , )(__VA_ARGS__)

#endif

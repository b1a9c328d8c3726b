/* Subscriptions to the topology server, in host byte order or swapped. */
#ifndef TOPOLOGY_H
#define TOPOLOGY_H

#include "check.h"

#define NEVER 0xffffffffu
/* Filter bits without a name in the header. */
#define CLUSTER_ONLY 0x20
#define NODE_ONLY 0x40
#define LATER_ONLY 0x80

extern bool turned; /* subscribe and read events in swapped byte order */
int topology_connection(uint32_t domain);
struct tipc_subscr subscription(uint32_t type, uint32_t lower, uint32_t upper, uint32_t timeout, uint32_t filter, const char *handle);
void subscribe(int fd, struct tipc_subscr subscription);
/* The next event, in host byte order; ends the case if none arrives. */
struct tipc_event event_from(int fd);
/* Checks for an event of `kind` for `lower`..`upper`, from the port of `of` (0: no port). */
void expect_event(int fd, uint32_t kind, uint32_t lower, uint32_t upper, int of);
/* Checks that the server has closed the connection. */
void expect_end(int fd);

#endif

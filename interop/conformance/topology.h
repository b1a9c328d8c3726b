/* Subscriptions to the topology server, in the program's byte order or turned round. */
#ifndef TOPOLOGY_H
#define TOPOLOGY_H

#include "check.h"

#define NEVER 0xffffffffu
/* Filter bits that the header does not name. */
#define CLUSTER_ONLY 0x20
#define NODE_ONLY 0x40
#define LATER_ONLY 0x80

extern bool turned; /* subscribe in the other byte order, and read events in it */
int topology_connection(uint32_t domain);
struct tipc_subscr subscription(uint32_t type, uint32_t lower, uint32_t upper, uint32_t timeout, uint32_t filter, const char *handle);
void subscribe(int fd, struct tipc_subscr subscription);
/* The next event, in this program's byte order; ends the case if none comes. */
struct tipc_event event_from(int fd);
/* An event of `kind` for `lower`..`upper`, from the port of `of` (0: no port). */
void expect_event(int fd, uint32_t kind, uint32_t lower, uint32_t upper, int of);
/* The server has closed the connection. */
void expect_end(int fd);

#endif

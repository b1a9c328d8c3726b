/* Members of communication groups. */
#ifndef GROUPS_H
#define GROUPS_H

#include "check.h"

/* The address of a group message: the sender's socket, then the sender as a member. */
#define PAIR (2 * sizeof(Address))
enum { EVENTS = TIPC_GROUP_MEMBER_EVTS };

int member(uint32_t type, uint32_t instance, uint32_t flags);
/* The next message is the event `event` of the member `instance`; returns the address of its socket. */
Address event_of(int fd, uint32_t type, uint32_t event, uint32_t instance);
void joined(int fd, uint32_t type, uint32_t instance); /* as event_of, TIPC_PUBLISHED */
/* The next message is `text`, sent by the socket `sender`, which is the member `instance`. */
void message_from(int fd, const char *text, int sender, uint32_t type, uint32_t instance);

#endif

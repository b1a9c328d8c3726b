/* Errors of communication groups before one is joined. */
#include "check.h"

/* A program that probes for groups must not find them before they exist. */
static void is_in_no_group(int fd)
{
	uint32_t value = 1;
	socklen_t length = sizeof value;
	errno = 0;
	int done = getsockopt(fd, SOL_TIPC, TIPC_GROUP_JOIN, &value, &length);
	int code = errno;
	EQ(done, DIFFERS("9", 0, -1));
	EQ(code, DIFFERS("9", 0, ENOPROTOOPT));
	EQ(value, DIFFERS("9", 0, 1));
}

static void leave_without_group(void)
{
	uint32_t value = 1;
	ERR(setsockopt(a_socket(SOCK_RDM), SOL_TIPC, TIPC_GROUP_LEAVE, NULL, 0), EINVAL);
	ERR(setsockopt(a_socket(SOCK_RDM), SOL_TIPC, TIPC_GROUP_LEAVE, &value, sizeof value), EINVAL);
}

static void refused_requests(void)
{
	int fd = a_socket(SOCK_RDM);
	struct tipc_group_req request = {.type = 63, .instance = 1, .scope = TIPC_CLUSTER_SCOPE};
	ERR(setsockopt(fd, SOL_TIPC, TIPC_GROUP_JOIN, &request, sizeof request), EACCES);
	request.type = a_type();
	request.scope = 4;
	ERR(setsockopt(fd, SOL_TIPC, TIPC_GROUP_JOIN, &request, sizeof request), EINVAL);
	request.scope = TIPC_CLUSTER_SCOPE;
	ERR(setsockopt(fd, SOL_TIPC, TIPC_GROUP_JOIN, &request, sizeof request - 1), EINVAL);
	ERR(setsockopt(fd, SOL_TIPC, TIPC_GROUP_JOIN, NULL, sizeof request), EFAULT);
	is_in_no_group(fd);
}

static void no_group(void)
{
	static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_RDM, SOCK_DGRAM};
	for (size_t i = 0; i < COUNT(types); i++)
		is_in_no_group(a_socket(types[i]));
}

const struct test_case group_cases[] = {
	{"group/leave-without-group", "9.1", leave_without_group, false},
	{"group/refused-requests", "9.1", refused_requests, false},
	{"group/no-group", "8.9", no_group, false},
	{NULL, NULL, NULL, false},
};

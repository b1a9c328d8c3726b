/* The helper on the other node, for cases with two nodes. Instances of its service type:
 *   1 RDM   commands; each gets a reply, "ok" or the requested value
 *   2 RDM   returns every message to its sender
 *   3 STREAM, 4 SEQPACKET   echo, with a process for each connection
 *   5 SEQPACKET   the first message says how to end the connection */
#include "check.h"

#include <signal.h>

static void echo(int fd)
{
	static uint8_t data[66000];
	long n;
	while ((n = recv(fd, data, sizeof data, 0)) > 0)
		for (long sent = 0, more; sent < n; sent += more)
			if ((more = send(fd, data + sent, (size_t)(n - sent), 0)) < 0)
				return;
}

static void end(int fd)
{
	char how[16] = "", byte;
	if (recv(fd, how, sizeof how - 1, 0) <= 0)
		return;
	if (strcmp(how, "shutdown") == 0) {
		shutdown(fd, SHUT_RDWR);
		recv(fd, &byte, 1, 0);
	} else if (strcmp(how, "unread") == 0) {
		/* The data of the peer stays unread. */
		events_of(fd, POLLIN, 5000);
	} else if (strcmp(how, "wait") == 0) {
		send(fd, "waiting", 7, 0);
		recv(fd, &byte, 1, 0);
	} else if (strcmp(how, "stuffed") == 0) {
		static uint8_t data[60000];
		fill(data, sizeof data, 8);
		for (int i = 0; i < 20; i++)
			send(fd, data, sizeof data, 0);
	}
}

static void *for_each_connection(int fd, void (*run)(int))
{
	for (;;) {
		int connection = accept(fd, NULL, NULL);
		if (connection < 0)
			continue;
		if (fork() == 0) {
			close(fd);
			run(connection);
			_exit(0);
		}
		close(connection);
	}
}

/* A member of a group: returns each message to its sender, as unicast, until one is `bye`. `all N SIZE`: sends that
 * many broadcasts, numbered in their first bytes, instead. */
static void echoing_member(uint32_t type, uint32_t instance)
{
	static uint8_t data[66001];
	struct tipc_group_req request = {.type = type, .instance = instance, .scope = TIPC_CLUSTER_SCOPE};
	int fd = a_socket(SOCK_RDM);
	OK(setsockopt(fd, SOL_TIPC, TIPC_GROUP_JOIN, &request, sizeof request));
	for (;;) {
		Address from[2];
		uint32_t count;
		size_t size;
		long n = OK(recvfrom(fd, data, sizeof data - 1, 0, ADDR(from[0]), &(socklen_t){sizeof from}));
		data[n] = 0;
		if (strcmp((char *)data, "bye") == 0)
			return;
		if (sscanf((char *)data, "all %u %zu", &count, &size) != 2) {
			sent_to(fd, data, (size_t)n, from[0]);
			continue;
		}
		for (uint32_t i = 0; i < count; i++) {
			fill(data, size, i);
			memcpy(data, &i, sizeof i);
			OK(send(fd, data, size, 0));
		}
	}
}

/* `bind TYPE LOWER UPPER SCOPE`, `unbind`, `own`, `connect TYPE INSTANCE`, `leave TYPE KIND ROUNDS`,
 * `group TYPE INSTANCE`, `quit`. */
static void command(int fd, int helper, const char *text, Address from)
{
	unsigned type, lower, upper;
	int scope;
	char answer[64] = "ok";
	int kind, count;
	if (sscanf(text, "bind %u %u %u %d", &type, &lower, &upper, &scope) == 4) {
		Address name = scoped(range(type, lower, upper), scope);
		if (bind(helper, ADDR(name), sizeof name) != 0)
			strcpy(answer, "bind failed");
	} else if (strcmp(text, "unbind") == 0) {
		bind(helper, NULL, 0);
	} else if (strcmp(text, "own") == 0) {
		Address own = own_address(helper);
		snprintf(answer, sizeof answer, "%u %u", own.addr.id.ref, own.addr.id.node);
	} else if (sscanf(text, "leave %u %d %d", &type, &kind, &count) == 3) {
		if (fork() == 0) {
			for (int round = 0; round < count; round++)
				leave(service(type, 1), kind, round);
			_exit(0);
		}
	} else if (sscanf(text, "group %u %u", &type, &lower) == 2) {
		if (fork() == 0) {
			echoing_member(type, lower);
			_exit(0);
		}
	} else if (sscanf(text, "connect %u %u", &type, &lower) == 2) {
		Address name = service(type, lower);
		if (fork() == 0) {
			int connection = a_socket(SOCK_STREAM);
			set_option(connection, TIPC_IMPORTANCE, TIPC_HIGH_IMPORTANCE);
			if (connect(connection, ADDR(name), sizeof name) == 0)
				echo(connection);
			_exit(0);
		}
	}
	sent_to(fd, answer, strlen(answer), from);
}

int serve(uint32_t type)
{
	signal(SIGCHLD, SIG_IGN);
	static const int kinds[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_SEQPACKET};
	static void (*const parts[])(int) = {echo, echo, end};
	for (uint32_t i = 0; i < COUNT(kinds); i++) {
		int fd = bound(kinds[i], service(type, 3 + i));
		OK(listen(fd, 0));
		if (fork() == 0)
			for_each_connection(fd, parts[i]);
		close(fd);
	}
	int echoing = bound(SOCK_RDM, service(type, 2)), helper = a_socket(SOCK_RDM), commands = bound(SOCK_RDM, service(type, 1));
	printf("serving %u\n", type);
	fflush(stdout);
	for (;;) {
		struct pollfd wait[] = {{.fd = echoing, .events = POLLIN}, {.fd = commands, .events = POLLIN}};
		if (poll(wait, 2, -1) < 0)
			continue;
		for (int i = 0; i < 2; i++) {
			if (!wait[i].revents)
				continue;
			static uint8_t data[66001];
			Address from;
			long n = recvfrom(wait[i].fd, data, sizeof data - 1, 0, ADDR(from), &(socklen_t){sizeof from});
			if (n <= 0)
				continue;
			data[n] = 0;
			if (i == 0)
				sent_to(echoing, data, (size_t)n, from);
			else if (strcmp((char *)data, "quit") == 0)
				kill(0, SIGTERM);
			else
				command(commands, helper, (char *)data, from);
		}
	}
}

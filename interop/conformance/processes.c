/* Copies of descriptors: in this process, in children, in other programs. */
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static void duplicates(void)
{
	struct pair ends = connected(SOCK_STREAM);
	char byte;
	int copies[5] = {dup(ends.client), dup2(ends.client, 100), dup3(ends.client, 101, O_CLOEXEC), fcntl(ends.client, F_DUPFD, 110),
			 fcntl(ends.client, F_DUPFD_CLOEXEC, 120)};
	EQ(copies[1], 100);
	EQ(copies[2], 101);
	IS(copies[3] >= 110 && copies[4] >= 120);
	static const int closing[] = {0, 0, FD_CLOEXEC, 0, FD_CLOEXEC};
	Address own = own_address(ends.client);
	for (int i = 0; i < 5; i++) {
		IS(copies[i] >= 0);
		EQ(OK(fcntl(copies[i], F_GETFD)), closing[i]);
		Address same = own_address(copies[i]);
		SAME(&same, &own, sizeof own);
		EQ(send(copies[i], "x", 1, 0), 1);
		EQ(recv(ends.server, &byte, 1, 0), 1);
	}
	/* Closing the last copy ends the connection. */
	close(ends.client);
	for (int i = 0; i < 4; i++)
		close(copies[i]);
	EQ(events_of(ends.server, POLLIN, 100), 0);
	EQ(send(copies[4], "y", 1, 0), 1);
	EQ(recv(ends.server, &byte, 1, 0), 1);
	close(copies[4]);
	ERR(recv(ends.server, &byte, 1, 0), ECONNRESET);
}

static void flags_of_duplicates(void)
{
	int fd = a_socket(SOCK_RDM), copy = dup(fd);
	char byte;
	blocking(copy, false); /* a flag of the socket, not of the descriptor */
	IS(OK(fcntl(fd, F_GETFL)) & O_NONBLOCK);
	ERR(recv(fd, &byte, 1, 0), EAGAIN);
	OK(fcntl(copy, F_SETFD, FD_CLOEXEC));
	EQ(OK(fcntl(fd, F_GETFD)), 0);
	set_option(copy, TIPC_IMPORTANCE, 2);
	EQ(get_option(fd, TIPC_IMPORTANCE), 2);
	ERR(dup3(fd, fd, 0), EINVAL);
	EQ(dup2(fd, fd), fd);
	EQ(own_address(fd).addr.id.ref, own_address(copy).addr.id.ref);
}

static void duplicate_over(void)
{
	/* dup2 onto a socket closes the socket. */
	struct pair ends = connected(SOCK_STREAM);
	char byte;
	int pipes[2];
	OK(pipe(pipes));
	EQ(dup2(pipes[0], ends.client), ends.client);
	ERR(recv(ends.server, &byte, 1, 0), ECONNRESET);
	EQ(write(pipes[1], "x", 1), 1);
	EQ(read(ends.client, &byte, 1), 1);
	/* A socket may also replace another file. */
	ends = connected(SOCK_STREAM);
	EQ(dup2(ends.client, pipes[0]), pipes[0]);
	close(ends.client);
	EQ(write(pipes[0], "z", 1), 1);
	EQ(recv(ends.server, &byte, 1, 0), 1);
	EQ(byte, 'z');
}

static void standard_streams(void)
{
	/* As with inetd: the connection is standard input and output. */
	struct pair ends = connected(SOCK_STREAM);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(ends.server, 0);
		dup2(ends.server, 1);
		close(ends.server);
		close(ends.client);
		char line[20];
		if (fgets(line, sizeof line, stdin) && printf("got %s", line) > 0 && fflush(stdout) == 0)
			_exit(0);
		_exit(1);
	}
	close(ends.server);
	EQ(write(ends.client, "line\n", 5), 5);
	char text[16];
	EQ(recv(ends.client, text, 9, MSG_WAITALL), 9);
	SAME(text, "got line\n", 9);
	reap(pid);
}

static void echo_in_child(int fd)
{
	char text[16];
	long n = OK(recv(fd, text, sizeof text, 0));
	EQ(send(fd, text, (size_t)n, 0), n);
}

static void inherited(void)
{
	static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
	for (size_t i = 0; i < COUNT(types); i++) {
		struct pair ends = connected(types[i]);
		pid_t pid = child(echo_in_child, ends.server);
		close(ends.server); /* handed over */
		char text[16];
		EQ(send(ends.client, "hello", 5, 0), 5);
		EQ(recv(ends.client, text, 5, MSG_WAITALL), 5);
		reap(pid);
		ERR(recv(ends.client, text, 1, 0), ECONNRESET);
	}
}

static void echo_message(int fd)
{
	const struct message *m = receive(fd, 0);
	EQ(sent_to(fd, m->data, (size_t)m->length, m->from), m->length);
}

static void inherited_and_shared(void)
{
	/* Both processes hold the same port; either may read, and each message is read once. */
	Address name = service(a_type(), 1);
	int fd = bound(SOCK_RDM, name), from = a_socket(SOCK_RDM);
	Address before = own_address(fd);
	pid_t pid = child(echo_message, fd);
	EQ(sent_to(from, "one", 3, name), 3);
	EQ(receive(from, 0)->length, 3);
	reap(pid);
	Address after = own_address(fd);
	SAME(&before, &after, sizeof after);
	EQ(sent_to(from, "two", 3, name), 3); /* the binding outlives the child */
	EQ(receive(fd, 0)->length, 3);
}

static void use_a_lot(int fd)
{
	char text[4];
	for (int i = 0; i < 100; i++) {
		EQ(recv(fd, text, 4, 0), 4);
		EQ(send(fd, text, 4, 0), 4);
	}
}

static void connection_changes_hands(void)
{
	/* Parent, child, parent: the connection stays the same, including data in it. */
	struct pair ends = connected(SOCK_SEQPACKET);
	char text[8];
	for (int i = 0; i < 100; i++) {
		EQ(send(ends.client, "ping", 4, 0), 4);
		EQ(recv(ends.server, text, 4, 0), 4);
	}
	pid_t pid = child(use_a_lot, ends.server);
	for (int i = 0; i < 100; i++) {
		EQ(send(ends.client, "ping", 4, 0), 4);
		EQ(recv(ends.client, text, 4, 0), 4);
	}
	EQ(send(ends.client, "kept", 4, 0), 4);
	reap(pid);
	EQ(recv(ends.server, text, 4, 0), 4);
	SAME(text, "kept", 4);
	EQ(send(ends.server, "back", 4, 0), 4);
	EQ(recv(ends.client, text, 4, 0), 4);
}

static void serve_connections(int listening)
{
	for (int i = 0; i < 3; i++) {
		int fd = (int)OK(accept(listening, NULL, NULL));
		echo_in_child(fd);
		close(fd);
	}
}

static void workers(void)
{
	/* The parent listens, its children accept. */
	Address address;
	int listening = listener(SOCK_STREAM, &address);
	pid_t pids[3];
	for (size_t i = 0; i < COUNT(pids); i++)
		pids[i] = child(serve_connections, listening);
	close(listening);
	for (int i = 0; i < 9; i++) {
		int fd = a_socket(SOCK_STREAM);
		char text[4];
		OK(connect(fd, ADDR(address), sizeof address));
		EQ(send(fd, "work", 4, 0), 4);
		EQ(recv(fd, text, 4, MSG_WAITALL), 4);
		close(fd);
	}
	for (size_t i = 0; i < COUNT(pids); i++)
		reap(pids[i]);
	/* Its binding ends with the last worker. */
	ERR(connect(a_socket(SOCK_STREAM), ADDR(address), sizeof address), EHOSTUNREACH);
}

static void connect_and_ask(int type)
{
	Address address = service((uint32_t)type, 1);
	char text[4];
	int fd = a_socket(SOCK_STREAM);
	OK(connect(fd, ADDR(address), sizeof address));
	EQ(send(fd, "work", 4, 0), 4);
	EQ(recv(fd, text, 4, MSG_WAITALL), 4);
}

static void forking_server(void)
{
	/* One child for each accepted connection. */
	Address address;
	int listening = listener(SOCK_STREAM, &address);
	pid_t clients[4], servers[4];
	for (size_t i = 0; i < COUNT(clients); i++)
		clients[i] = child(connect_and_ask, (int)address.addr.name.name.type);
	for (size_t i = 0; i < COUNT(servers); i++) {
		int fd = (int)OK(accept(listening, NULL, NULL));
		servers[i] = child(echo_in_child, fd);
		close(fd);
	}
	for (size_t i = 0; i < COUNT(clients); i++) {
		reap(clients[i]);
		reap(servers[i]);
	}
}

static void grandchild(int fd)
{
	pid_t pid = fork();
	if (pid == 0) {
		echo_in_child(fd);
		_exit(0);
	}
	/* The intermediate process exits first, as when a daemon starts. */
	_exit(0);
}

static void orphan(void)
{
	struct pair ends = connected(SOCK_STREAM);
	pid_t pid = child(grandchild, ends.server);
	close(ends.server);
	reap(pid);
	char text[4];
	EQ(send(ends.client, "late", 4, 0), 4);
	EQ(recv(ends.client, text, 4, MSG_WAITALL), 4);
	ERR(recv(ends.client, text, 1, 0), ECONNRESET);
}

int helper_main(const char *what, int fd)
{
	if (strcmp(what, "echo") == 0) {
		echo_in_child(fd);
	} else if (strcmp(what, "echo-message") == 0) {
		echo_message(fd);
	} else if (strcmp(what, "accept") == 0) {
		int accepted = (int)OK(accept(fd, NULL, NULL));
		EQ(get_socket_option(fd, SO_ACCEPTCONN), 1);
		echo_in_child(accepted);
	} else if (strcmp(what, "options") == 0) {
		EQ(get_option(fd, TIPC_IMPORTANCE), 3);
		EQ(get_option(fd, TIPC_CONN_TIMEOUT), 1234);
		EQ(OK(fcntl(fd, F_GETFL)) & O_NONBLOCK, O_NONBLOCK);
		EQ(get_socket_option(fd, SO_TYPE), SOCK_STREAM);
	} else if (strcmp(what, "closed") == 0) {
		ERR(fcntl(fd, F_GETFD), EBADF);
	} else {
		fail(__FILE__, __LINE__, "unknown helper: %s", what);
	}
	return 0;
}

static void executed(void)
{
	static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
	for (size_t i = 0; i < COUNT(types); i++) {
		struct pair ends = connected(types[i]);
		char text[8];
		EQ(send(ends.client, "before", 6, 0), 6); /* sent before the other program starts */
		arrives(ends.server);
		OK(fcntl(ends.client, F_SETFD, FD_CLOEXEC));
		pid_t pid = helper("echo", ends.server);
		close(ends.server);
		EQ(recv(ends.client, text, 6, MSG_WAITALL), 6);
		SAME(text, "before", 6);
		reap(pid);
		ERR(recv(ends.client, text, 1, 0), ECONNRESET);
	}
}

static void executed_connectionless(void)
{
	Address name = service(a_type(), 1);
	int fd = bound(SOCK_RDM, name), from = a_socket(SOCK_RDM | SOCK_CLOEXEC);
	pid_t pid = helper("echo-message", fd);
	EQ(sent_to(from, "hello", 5, name), 5);
	EQ(receive(from, 0)->length, 5);
	reap(pid);
}

static void executed_listener(void)
{
	Address address;
	int listening = listener(SOCK_STREAM, &address), fd = a_socket(SOCK_STREAM | SOCK_CLOEXEC);
	pid_t pid = helper("accept", listening);
	char text[8];
	OK(connect(fd, ADDR(address), sizeof address));
	EQ(send(fd, "hello", 5, 0), 5);
	EQ(recv(fd, text, 5, MSG_WAITALL), 5);
	reap(pid);
}

static void executed_options(void)
{
	int fd = a_socket(SOCK_STREAM | SOCK_NONBLOCK);
	set_option(fd, TIPC_IMPORTANCE, 3);
	set_option(fd, TIPC_CONN_TIMEOUT, 1234);
	reap(helper("options", fd));
}

static void closed_on_exec(void)
{
	struct pair ends = connected(SOCK_STREAM);
	OK(fcntl(ends.client, F_SETFD, FD_CLOEXEC));
	OK(fcntl(ends.server, F_SETFD, FD_CLOEXEC));
	pid_t pid = helper("closed", ends.client);
	close(ends.client);
	char byte;
	ERR(recv(ends.server, &byte, 1, 0), ECONNRESET); /* once the other program has started */
	reap(pid);
}

static void spawned(void)
{
	struct pair ends = connected(SOCK_STREAM);
	char number[16], *arguments[] = {"conformance", "--helper", "echo", number, NULL}, text[8];
	snprintf(number, sizeof number, "%d", ends.server);
	OK(fcntl(ends.client, F_SETFD, FD_CLOEXEC));
	pid_t pid;
	EQ(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
	close(ends.server);
	EQ(send(ends.client, "hello", 5, 0), 5);
	EQ(recv(ends.client, text, 5, MSG_WAITALL), 5);
	reap(pid);
}

static void other_programs_do_no_harm(void)
{
	struct pair ends = connected(SOCK_STREAM);
	char text[8];
	EQ(system("true"), 0);
	FILE *pipe_to = popen("cat >/dev/null", "w");
	IS(pipe_to != NULL);
	EQ(pclose(pipe_to), 0);
	EQ(send(ends.client, "still", 5, 0), 5);
	EQ(recv(ends.server, text, 5, MSG_WAITALL), 5);
}

static void pass(int channel, int fd)
{
	union {
		char space[CMSG_SPACE(sizeof fd)];
		struct cmsghdr header;
	} control = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)}};
	memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
	struct iovec part = {"x", 1};
	struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
	EQ(sendmsg(channel, &head, 0), 1);
}

static int taken(int channel)
{
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr header;
	} control;
	char byte;
	struct iovec part = {&byte, 1};
	struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
	EQ(recvmsg(channel, &head, 0), 1);
	int fd;
	IS(CMSG_FIRSTHDR(&head) != NULL);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&head)), sizeof fd);
	return fd;
}

static void passed_to_another(void)
{
	int channel[2];
	OK(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
	pid_t pid = fork();
	if (pid == 0) {
		close(channel[0]);
		int connection = taken(channel[1]), listening = taken(channel[1]), datagrams = taken(channel[1]);
		echo_in_child(connection);
		close(connection);
		int accepted = (int)OK(accept(listening, NULL, NULL));
		echo_in_child(accepted);
		echo_message(datagrams);
		_exit(0);
	}
	close(channel[1]);
	struct pair ends = connected(SOCK_STREAM);
	Address address, name = service(a_type(), 1);
	int listening = listener(SOCK_SEQPACKET, &address), datagrams = bound(SOCK_RDM, name);
	char text[8];
	EQ(send(ends.client, "hello", 5, 0), 5);
	pass(channel[0], ends.server);
	pass(channel[0], listening);
	pass(channel[0], datagrams);
	close(ends.server);
	close(listening);
	close(datagrams);
	EQ(recv(ends.client, text, 5, MSG_WAITALL), 5);
	ERR(recv(ends.client, text, 5, 0), ECONNRESET);
	int fd = a_socket(SOCK_SEQPACKET);
	OK(connect(fd, ADDR(address), sizeof address));
	EQ(send(fd, "hello", 5, 0), 5);
	EQ(recv(fd, text, 5, 0), 5);
	int from = a_socket(SOCK_RDM);
	EQ(sent_to(from, "hello", 5, name), 5);
	EQ(receive(from, 0)->length, 5);
	reap(pid);
}

static void passed_to_oneself(void)
{
	int channel[2];
	OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, channel));
	struct pair ends = connected(SOCK_SEQPACKET);
	pass(channel[0], ends.server);
	int copy = taken(channel[1]);
	close(ends.server);
	char text[8];
	EQ(send(ends.client, "hello", 5, 0), 5);
	EQ(recv(copy, text, 8, 0), 5);
	EQ(get_socket_option(copy, SO_TYPE), SOCK_SEQPACKET);
	close(copy);
	ERR(recv(ends.client, text, 8, 0), ECONNRESET);
}

const struct test_case process_cases[] = {
	{"copy/duplicates", "dup(2), fcntl(2)", duplicates, false},
	{"copy/flags-of-duplicates", "dup(2)", flags_of_duplicates, false},
	{"copy/over-another", "dup2(2)", duplicate_over, false},
	{"copy/standard-streams", "dup2(2)", standard_streams, false},
	{"fork/inherited", "fork(2)", inherited, false},
	{"fork/shared", "fork(2)", inherited_and_shared, false},
	{"fork/connection-changes-hands", "fork(2)", connection_changes_hands, false},
	{"fork/workers", "fork(2)", workers, false},
	{"fork/server", "fork(2)", forking_server, false},
	{"fork/orphan", "fork(2)", orphan, false},
	{"exec/connection", "execve(2)", executed, false},
	{"exec/connectionless", "execve(2)", executed_connectionless, false},
	{"exec/listener", "execve(2)", executed_listener, false},
	{"exec/options", "execve(2)", executed_options, false},
	{"exec/closed", "execve(2)", closed_on_exec, false},
	{"exec/spawned", "posix_spawn(3)", spawned, false},
	{"exec/unrelated-programs", "system(3)", other_programs_do_no_harm, false},
	{"pass/to-another", "unix(7) SCM_RIGHTS", passed_to_another, false},
	{"pass/to-oneself", "unix(7) SCM_RIGHTS", passed_to_oneself, false},
	{NULL, NULL, NULL, false},
};

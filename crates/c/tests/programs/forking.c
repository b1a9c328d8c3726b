/* Sockets in a forked child: with a daemon all are inherited; with an embedded node they fail with a clear error. */
#include "check.h"
#include <pthread.h>
#include <sys/wait.h>

#define TYPE 7400

static const struct tipc_addr service = { .type = TYPE, .instance = 1 };
static const struct tipc_addr datagrams = { .type = TYPE, .instance = 2 };

static void assert_success(pid_t child)
{
	int status = -1;

	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A classic server: the parent listens, its children accept. */
static void workers(void)
{
	enum { COUNT = 3 };
	char buffer[20];
	pid_t children[COUNT];
	int i, client, accepted, server = open_socket(SOCK_STREAM);

	CHECK(tipc_bind(server, TYPE, 1, 1, 0) == 0 && tipc_listen(server, 10) == 0);
	for (i = 0; i < COUNT; i++) {
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i] == 0) {
			accepted = tipc_accept(server, NULL);
			CHECK(accepted >= 0 && tipc_close(server) == 0);
			CHECK(tipc_recv(accepted, buffer, 8, true) == 8);
			CHECK(tipc_send(accepted, buffer, 8) == 8);
			CHECK(tipc_recv(accepted, buffer, 8, false) == 0);
			CHECK(tipc_close(accepted) == 0);
			exit(0);
		}
	}
	for (i = 0; i < COUNT; i++) {
		client = open_socket(SOCK_STREAM);
		CHECK(tipc_connect(client, &service) == 0);
		CHECK(tipc_send(client, "question", 8) == 8);
		CHECK(tipc_recv(client, buffer, 8, true) == 8 && memcmp(buffer, "question", 8) == 0);
		CHECK(utipc_shutdown(client) == 0 && tipc_close(client) == 0);
	}
	for (i = 0; i < COUNT; i++)
		assert_success(children[i]);
	CHECK(tipc_close(server) == 0);
}

/* The parent accepts a connection and passes it to a child, which polls it. */
static void handed_on(void)
{
	char buffer[20];
	int size, client, accepted, server = open_socket(SOCK_SEQPACKET);
	pid_t child;

	CHECK(tipc_bind(server, TYPE, 1, 1, 0) == 0 && tipc_listen(server, 10) == 0);
	client = tipc_socket(SOCK_SEQPACKET | SOCK_NONBLOCK);
	FAILS(tipc_connect(client, &service), EINPROGRESS);
	accepted = tipc_accept(server, NULL);
	CHECK(accepted >= 0);
	child = fork();
	if (child == 0) {
		CHECK(tipc_close(client) == 0 && tipc_close(server) == 0);
		CHECK(tipc_sock_non_block(accepted) == accepted);
		CHECK(wait_for(accepted, POLLIN) & POLLIN);
		CHECK(tipc_recv(accepted, buffer, sizeof(buffer), false) == 5);
		CHECK(tipc_send(accepted, buffer, 5) == 5);
		exit(0);
	}
	CHECK(tipc_close(accepted) == 0);
	CHECK(wait_for(client, POLLOUT) & POLLOUT);
	CHECK(tipc_send(client, "hello", 5) == 5);
	do
		CHECK(wait_for(client, POLLIN) & POLLIN);
	while ((size = tipc_recv(client, buffer, sizeof(buffer), false)) < 0 && errno == EAGAIN);
	CHECK(size == 5);
	assert_success(child);
	CHECK(tipc_close(client) == 0 && tipc_close(server) == 0);
}

/* The child of a process with an embedded node starts its own node. */
static void left_behind(void)
{
	uint32_t before = tipc_own_node();
	char buffer[20];
	int server = open_socket(SOCK_RDM);
	pid_t child;

	CHECK(tipc_bind(server, TYPE, 2, 2, 0) == 0);
	child = fork();
	if (child == 0) {
		FAILS(tipc_recv(server, buffer, sizeof(buffer), false), EOPNOTSUPP);
		CHECK(strstr(utipc_strerror(), "fork"));
		CHECK(tipc_close(server) == 0);
		server = open_socket(SOCK_RDM);
		CHECK(tipc_own_node() != before && tipc_own_node() != 0);
		CHECK(tipc_srv_wait(&datagrams, 60000));
		CHECK(tipc_sendto(server, "up", 2, &datagrams) == 2);
		CHECK(tipc_recv(server, buffer, sizeof(buffer), false) == 2);
		exit(0);
	}
	{
		struct tipc_addr from;

		CHECK(tipc_recvfrom(server, buffer, sizeof(buffer), &from, NULL, NULL) == 2);
		CHECK(from.node != before);
		CHECK(tipc_sendto(server, "ok", 2, &from) == 2);
	}
	assert_success(child);
	CHECK(tipc_own_node() == before && tipc_close(server) == 0);
}

static volatile int enough;

static void *open_and_close(void *unused)
{
	while (!enough)
		CHECK(tipc_close(open_socket(SOCK_RDM)) == 0);
	return unused;
}

/* Forks while other threads hold arbitrary locks. */
static void beside_threads(int forks)
{
	pthread_t threads[3];
	int i;

	for (i = 0; i < 3; i++)
		CHECK(pthread_create(&threads[i], NULL, open_and_close, NULL) == 0);
	for (i = 0; i < forks; i++) {
		pid_t child = fork();

		CHECK(child >= 0);
		if (child == 0) {
			/* A lock that was left taken would block these calls. */
			alarm(60);
			FAILS(tipc_send(-1, "", 0), EBADF);
			CHECK(tipc_close(open_socket(SOCK_RDM)) == 0);
			_exit(0);
		}
		assert_success(child);
	}
	enough = 1;
	for (i = 0; i < 3; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(int argc, char **argv)
{
	if (is_daemon(argc, argv)) {
		workers();
		handed_on();
		beside_threads(30);
	} else {
		left_behind();
		/* Each child starts its own node. */
		beside_threads(4);
	}
	printf("ok\n");
	return 0;
}

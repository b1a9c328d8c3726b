/* Typical servers: servers fork|threads|select|epoll [CONNECTIONS]. The program is its own client; it prints `ok KIND
 * CONNECTIONS` or the failure. `epoll` is edge-triggered, with all connections open at the same time. With two nodes:
 * servers --serve TYPE KIND [CONNECTIONS] on one of them, servers --peer TYPE KIND [CONNECTIONS] on the other. */
#include <errno.h>
#include <fcntl.h>
#include <linux/tipc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 5
#define LENGTH 100

static struct sockaddr_tipc address = {.family = AF_TIPC, .addrtype = TIPC_SERVICE_ADDR, .scope = TIPC_CLUSTER_SCOPE};

static void must(int holds, const char *what)
{
	if (!holds) {
		printf("FAILED: %s: %s\n", what, strerror(errno));
		exit(1);
	}
}

/* Echoes until the client closes, which TIPC reports as a reset. */
static void echo(int fd)
{
	char data[LENGTH];
	ssize_t n;
	while ((n = read(fd, data, sizeof data)) > 0)
		must(write(fd, data, (size_t)n) == n, "write");
	must(n == 0 || errno == ECONNRESET, "read");
	close(fd);
}

static void serve_by_fork(int listening, int connections)
{
	for (int i = 0; i < connections; i++) {
		int fd = accept(listening, NULL, NULL);
		must(fd >= 0, "accept");
		pid_t pid = fork();
		must(pid >= 0, "fork");
		if (pid == 0) {
			close(listening);
			echo(fd);
			exit(0);
		}
		close(fd);
	}
	for (int i = 0; i < connections; i++) {
		int status;
		must(wait(&status) > 0 && status == 0, "a worker");
	}
}

static void *echo_in_thread(void *fd)
{
	echo((int)(intptr_t)fd);
	return NULL;
}

static void serve_by_threads(int listening, int connections)
{
	pthread_t *threads = calloc((size_t)connections, sizeof *threads);
	for (int i = 0; i < connections; i++) {
		int fd = accept(listening, NULL, NULL);
		must(fd >= 0, "accept");
		must(pthread_create(&threads[i], NULL, echo_in_thread, (void *)(intptr_t)fd) == 0, "pthread_create");
	}
	for (int i = 0; i < connections; i++)
		pthread_join(threads[i], NULL);
	free(threads);
}

static void serve_by_select(int listening, int connections)
{
	fd_set all, ready;
	FD_ZERO(&all);
	FD_SET(listening, &all);
	for (int ended = 0, highest = listening; ended < connections;) {
		ready = all;
		must(select(highest + 1, &ready, NULL, NULL, NULL) > 0, "select");
		for (int fd = 0; fd <= highest; fd++) {
			if (!FD_ISSET(fd, &ready))
				continue;
			if (fd == listening) {
				int accepted = accept(listening, NULL, NULL);
				must(accepted >= 0 && accepted < FD_SETSIZE, "accept");
				FD_SET(accepted, &all);
				highest = accepted > highest ? accepted : highest;
				continue;
			}
			char data[LENGTH];
			ssize_t n = read(fd, data, sizeof data);
			if (n > 0) {
				must(write(fd, data, (size_t)n) == n, "write");
				continue;
			}
			must(n == 0 || errno == ECONNRESET, "read");
			FD_CLR(fd, &all);
			close(fd);
			ended++;
		}
	}
}

static void watch(int epoll, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events | EPOLLET, .data.fd = fd};
	must(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
}

static void serve_by_epoll(int listening, int connections)
{
	int epoll = epoll_create1(0), ended = 0;
	must(fcntl(listening, F_SETFL, O_NONBLOCK) == 0, "fcntl");
	watch(epoll, listening, EPOLLIN);
	while (ended < connections) {
		struct epoll_event events[64];
		int count = epoll_wait(epoll, events, 64, 60000);
		must(count > 0, "epoll_wait of the server");
		for (int i = 0; i < count; i++) {
			int fd = events[i].data.fd;
			if (fd == listening) {
				int accepted;
				while ((accepted = accept4(listening, NULL, NULL, SOCK_NONBLOCK)) >= 0)
					watch(epoll, accepted, EPOLLIN);
				must(errno == EAGAIN, "accept4");
				continue;
			}
			char data[LENGTH];
			ssize_t n;
			while ((n = read(fd, data, sizeof data)) > 0)
				must(write(fd, data, (size_t)n) == n, "write");
			if (n < 0 && errno == EAGAIN)
				continue;
			must(n == 0 || errno == ECONNRESET, "read");
			close(fd);
			ended++;
		}
	}
}

struct client {
	int fd, rounds;
	size_t got;
};

static void ask(struct client *c, int id)
{
	char text[LENGTH] = "";
	snprintf(text, sizeof text, "connection %d round %d", id, c->rounds);
	c->got = 0;
	must(write(c->fd, text, sizeof text) == sizeof text, "write of the client");
}

/* Opens all connections at once; each sends ROUNDS requests. */
static void ask_all(int connections)
{
	struct client *clients = calloc((size_t)connections, sizeof *clients);
	int epoll = epoll_create1(0);
	for (int i = 0; i < connections; i++) {
		clients[i].fd = socket(AF_TIPC, SOCK_STREAM, 0);
		must(clients[i].fd >= 0, "socket");
		if (connect(clients[i].fd, (struct sockaddr *)&address, sizeof address) != 0) {
			printf("FAILED: connection %d of %d: %s\n", i + 1, connections, strerror(errno));
			exit(1);
		}
		must(fcntl(clients[i].fd, F_SETFL, O_NONBLOCK) == 0, "fcntl");
		struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
		must(epoll_ctl(epoll, EPOLL_CTL_ADD, clients[i].fd, &event) == 0, "epoll_ctl");
	}
	for (int i = 0; i < connections; i++)
		ask(&clients[i], i);
	for (int left = connections; left > 0;) {
		struct epoll_event events[64];
		int count = epoll_wait(epoll, events, 64, 60000);
		must(count > 0, "epoll_wait of the client");
		for (int k = 0; k < count; k++) {
			int id = (int)events[k].data.u32;
			struct client *c = &clients[id];
			char text[LENGTH], expected[LENGTH] = "";
			ssize_t n = read(c->fd, text, sizeof text - c->got);
			if (n < 0 && errno == EAGAIN)
				continue;
			must(n > 0, "read of the client");
			snprintf(expected, sizeof expected, "connection %d round %d", id, c->rounds);
			must(memcmp(text, expected + c->got, (size_t)n) == 0, "the right reply");
			c->got += (size_t)n;
			if (c->got < LENGTH)
				continue;
			if (++c->rounds < ROUNDS) {
				ask(c, id);
				continue;
			}
			must(epoll_ctl(epoll, EPOLL_CTL_DEL, c->fd, NULL) == 0, "epoll_ctl");
			left--;
		}
	}
	for (int i = 0; i < connections; i++)
		close(clients[i].fd);
	free(clients);
}

/* Waits until the address is bound. */
static void wait_for_server(void)
{
	struct sockaddr_tipc server = {.family = AF_TIPC, .addrtype = TIPC_SERVICE_ADDR};
	struct tipc_subscr wanted = {.timeout = 60000, .filter = TIPC_SUB_SERVICE};
	struct tipc_event event;
	server.addr.name.name.type = server.addr.name.name.instance = TIPC_TOP_SRV;
	wanted.seq.type = address.addr.name.name.type;
	int fd = socket(AF_TIPC, SOCK_SEQPACKET, 0);
	must(fd >= 0, "socket");
	must(connect(fd, (struct sockaddr *)&server, sizeof server) == 0, "connect to the topology server");
	must(send(fd, &wanted, sizeof wanted, 0) == sizeof wanted, "subscribe");
	must(recv(fd, &event, sizeof event, 0) == sizeof event, "an event");
	must(event.event == TIPC_PUBLISHED, "a server within a minute");
	close(fd);
}

static int listener(void)
{
	int listening = socket(AF_TIPC, SOCK_STREAM, 0);
	must(listening >= 0, "socket");
	must(listen(listening, 128) == 0, "listen");
	must(bind(listening, (struct sockaddr *)&address, sizeof address) == 0, "bind");
	return listening;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*serve)(int, int);
		int connections;
	} kinds[] = {{"fork", serve_by_fork, 20}, {"threads", serve_by_threads, 50}, {"select", serve_by_select, 200}, {"epoll", serve_by_epoll, 1000}};
	struct rlimit limit = {4096, 4096};
	must(setrlimit(RLIMIT_NOFILE, &limit) == 0 || getrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
	int serving = argc > 2 && strcmp(argv[1], "--serve") == 0, asking = argc > 2 && strcmp(argv[1], "--peer") == 0;
	address.addr.name.name.type = serving || asking ? (uint32_t)atoi(argv[2]) : 0x40000000u + (uint32_t)getpid();
	char **words = serving || asking ? argv + 3 : argv + 1;
	for (size_t i = 0; words[0] && i < sizeof kinds / sizeof kinds[0]; i++) {
		if (strcmp(words[0], kinds[i].name) != 0)
			continue;
		int connections = words[1] ? atoi(words[1]) : kinds[i].connections, status = 0;
		if (asking) {
			wait_for_server();
			ask_all(connections);
		} else if (serving) {
			kinds[i].serve(listener(), connections);
		} else {
			int listening = listener();
			pid_t pid = fork();
			if (pid == 0) {
				kinds[i].serve(listening, connections);
				exit(0);
			}
			close(listening);
			ask_all(connections);
			must(waitpid(pid, &status, 0) == pid && status == 0, "the server");
		}
		printf("ok %s %d\n", kinds[i].name, connections);
		return 0;
	}
	fprintf(stderr, "usage: %s [--serve TYPE | --peer TYPE] fork|threads|select|epoll [CONNECTIONS]\n", argv[0]);
	return 2;
}

/* Signals that arrive while a call waits. */
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>

static volatile sig_atomic_t caught;

static void catch(int number)
{
	(void)number;
	caught++;
}

/* SIGALRM after `ms` and then every `ms`, because a single signal could arrive before the call waits. */
static void alarm_after(int ms, bool restart)
{
	struct sigaction action = {.sa_handler = catch, .sa_flags = restart ? SA_RESTART : 0};
	sigaction(SIGALRM, &action, NULL);
	struct itimerval timer = {.it_value.tv_usec = ms * 1000, .it_interval.tv_usec = ms * 1000};
	setitimer(ITIMER_REAL, &timer, NULL);
}

static void no_alarm(void)
{
	struct itimerval none = {{0, 0}, {0, 0}};
	setitimer(ITIMER_REAL, &none, NULL);
}

static void receive_is_interrupted(void)
{
	static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
	char byte;
	for (size_t i = 0; i < COUNT(types); i++) {
		struct pair ends = connected(types[i]);
		alarm_after(80, false);
		ERR(recv(ends.client, &byte, 1, 0), EINTR);
		ERR(read(ends.client, &byte, 1), EINTR);
		no_alarm();
	}
	int fd = a_socket(SOCK_RDM);
	alarm_after(80, false);
	ERR(recv(fd, &byte, 1, 0), EINTR);
	no_alarm();
	IS(caught >= 5);
}

struct sender {
	int fd;
	Address to;
};

static void *send_later(void *argument)
{
	struct sender *s = argument;
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	nap(400);
	if (s->to.family)
		OK(sent_to(s->fd, "x", 1, s->to));
	else
		OK(send(s->fd, "x", 1, 0));
	return NULL;
}

static void receive_is_restarted(void)
{
	Address name = service(a_type(), 1);
	struct pair ends = connected(SOCK_STREAM);
	int readers[] = {ends.server, bound(SOCK_RDM, name)};
	struct sender senders[] = {{.fd = ends.client}, {a_socket(SOCK_RDM), name}};
	for (size_t i = 0; i < COUNT(readers); i++) {
		pthread_t thread;
		char byte;
		caught = 0;
		EQ(pthread_create(&thread, NULL, send_later, &senders[i]), 0);
		alarm_after(80, true);
		EQ(recv(readers[i], &byte, 1, 0), 1);
		no_alarm();
		IS(caught >= 1);
		pthread_join(thread, NULL);
	}
}

static void timed_receive_is_not_restarted(void)
{
	int fd = a_socket(SOCK_RDM);
	char byte;
	set_timeout(fd, SO_RCVTIMEO, 1000);
	alarm_after(80, true);
	ERR(recv(fd, &byte, 1, 0), EINTR);
	no_alarm();
}

static void accept_is_interrupted(void)
{
	Address address;
	int fd = listener(SOCK_STREAM, &address);
	alarm_after(80, false);
	ERR(accept(fd, NULL, NULL), EINTR);
	no_alarm();
}

static void *connect_later(void *address)
{
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	nap(400);
	int fd = a_socket(SOCK_STREAM);
	OK(connect(fd, address, sizeof(Address)));
	return NULL;
}

static void accept_is_restarted(void)
{
	Address address;
	int fd = listener(SOCK_STREAM, &address);
	pthread_t thread;
	EQ(pthread_create(&thread, NULL, connect_later, &address), 0);
	alarm_after(80, true);
	OK(accept(fd, NULL, NULL));
	no_alarm();
	IS(caught >= 1);
	pthread_join(thread, NULL);
}

static void connect_is_interrupted(void)
{
	/* connect() has its own time limit, so the kernel never restarts it; the connection continues in the
	 * background. */
	for (int restart = 0; restart < 2; restart++) {
		Address address;
		int listening = listener(SOCK_STREAM, &address), fd = a_socket(SOCK_STREAM);
		set_option(fd, TIPC_CONN_TIMEOUT, 1000);
		alarm_after(80, restart);
		ERR(connect(fd, ADDR(address), sizeof address), EINTR);
		no_alarm();
		OK(accept(listening, NULL, NULL));
		EQ(events_of(fd, POLLOUT, 5000), POLLOUT);
		ERR(connect(fd, ADDR(address), sizeof address), EISCONN);
	}
}

static void send_is_interrupted(void)
{
	static char data[60000];
	for (int restart = 0; restart < 2; restart++) {
		struct pair ends = connected(SOCK_SEQPACKET);
		while (send(ends.client, data, sizeof data, MSG_DONTWAIT) > 0)
			continue;
		if (restart)
			set_timeout(ends.client, SO_SNDTIMEO, 1000);
		alarm_after(80, restart);
		ERR(send(ends.client, data, sizeof data, 0), restart ? DIFFERS("8.9", EINTR, EAGAIN) : EINTR);
		no_alarm();
	}
}

static void part_of_a_write(void)
{
	static char data[4 << 20];
	struct pair ends = connected(SOCK_STREAM);
	alarm_after(80, false);
	long n = send(ends.client, data, sizeof data, 0);
	no_alarm();
	IS(n > 0 && n < (long)sizeof data);
}

static void waiting_for_events(void)
{
	int fd = a_socket(SOCK_RDM), epoll = (int)OK(epoll_create1(0));
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	struct epoll_event event = {.events = EPOLLIN};
	OK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
	fd_set in;
	FD_ZERO(&in);
	FD_SET(fd, &in);
	alarm_after(80, true); /* these are never restarted */
	ERR(poll(&wait, 1, 5000), EINTR);
	ERR(poll(&wait, 1, -1), EINTR);
	ERR(select(fd + 1, &in, NULL, NULL, NULL), EINTR);
	ERR(epoll_wait(epoll, &event, 1, 5000), EINTR);
	no_alarm();
}

static void signals_let_in_while_waiting(void)
{
	/* ppoll and pselect: the signal is unblocked only during the wait. */
	int fd = a_socket(SOCK_RDM);
	sigset_t block, before;
	sigemptyset(&block);
	sigaddset(&block, SIGALRM);
	sigprocmask(SIG_BLOCK, &block, &before);
	struct sigaction action = {.sa_handler = catch};
	sigaction(SIGALRM, &action, NULL);
	raise(SIGALRM);
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	EQ(caught, 0);
	ERR(ppoll(&wait, 1, NULL, &before), EINTR);
	EQ(caught, 1);
	raise(SIGALRM);
	fd_set in;
	FD_ZERO(&in);
	FD_SET(fd, &in);
	ERR(pselect(fd + 1, &in, NULL, NULL, NULL, &before), EINTR);
	EQ(caught, 2);
	raise(SIGALRM);
	EQ(events_of(fd, POLLIN, 30), 0); /* blocked again */
	EQ(caught, 2);
}

/* Linux's TIPC sends no SIGIO; utipc does, also to a program that has waited by poll before. */
static void signal_of_messages(void)
{
	static const struct timespec limit = {.tv_sec = 20};
	struct pair ends = connected(SOCK_SEQPACKET);
	sigset_t set;
	char byte;
	if (engine == KERNEL)
		return;
	for (int i = 0; i < 50; i++) {
		EQ(send(ends.server, "x", 1, 0), 1);
		arrives(ends.client);
		EQ(recv(ends.client, &byte, 1, 0), 1);
		EQ(events_of(ends.client, POLLIN, 0), 0);
	}
	sigemptyset(&set);
	sigaddset(&set, SIGIO);
	OK(sigprocmask(SIG_BLOCK, &set, NULL));
	OK(fcntl(ends.client, F_SETOWN, getpid()));
	OK(fcntl(ends.client, F_SETFL, O_ASYNC | O_NONBLOCK));
	for (int i = 0; i < 20; i++) {
		EQ(send(ends.server, "x", 1, 0), 1);
		EQ(sigtimedwait(&set, NULL, &limit), SIGIO);
		EQ(recv(ends.client, &byte, 1, 0), 1);
		ERR(recv(ends.client, &byte, 1, 0), EAGAIN);
	}
}

/* The sockets of a handler that makes calls at any moment, also while its thread is in a call. */
static struct {
	int rdm, listener, kept;
	struct pair ends;
	Address name;
} own;

static void again_after(int us)
{
	struct itimerval timer = {.it_value.tv_usec = us};
	setitimer(ITIMER_REAL, &timer, NULL);
}

static void call(int number)
{
	int before = errno, socket_type = SOCK_RDM | SOCK_NONBLOCK;
	char bytes[16];
	struct pollfd wait = {.fd = own.ends.client, .events = POLLIN};
	fd_set in;
	struct timeval now = {0};
	(void)number;
	sent_to(own.rdm, "h", 1, own.name);
	recv(own.rdm, bytes, sizeof bytes, MSG_DONTWAIT);
	(void)!write(own.ends.client, "h", 1);
	(void)!read(own.ends.client, bytes, sizeof bytes);
	accept(own.listener, NULL, NULL);
	poll(&wait, 1, 0);
	FD_ZERO(&in);
	FD_SET(own.ends.client, &in);
	select(own.ends.client + 1, &in, NULL, NULL, &now);
	fcntl(own.ends.client, F_GETFL);
	int copy = dup(own.ends.client), fd = socket(AF_TIPC, socket_type, 0);
	if (copy >= 0) {
		dup2(own.rdm, copy);
		close(copy);
	}
	if (fd >= 0)
		close(fd);
	/* The socket of the call that it interrupts, at times. */
	if (own.kept >= 0 && caught % 8 == 0) {
		close(own.kept);
		own.kept = -1;
	}
	caught++;
	again_after(200);
	errno = before;
}

static void calls_in_a_handler(void)
{
	static const int rounds = 2000;
	struct pair ends = connected(SOCK_SEQPACKET);
	char byte;
	own.name = service(a_type(), 1);
	own.rdm = bound(SOCK_RDM | SOCK_NONBLOCK, own.name);
	own.ends = connected(SOCK_STREAM);
	blocking(own.ends.client, false);
	own.listener = listener(SOCK_STREAM, &(Address){0});
	blocking(own.listener, false);
	own.kept = -1;
	struct sigaction action = {.sa_handler = call, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &action, NULL);
	again_after(200);
	/* On a slow machine the next signal comes before a round ends, and fewer rounds must do. */
	long long end = now_ms() + 20000;
	for (int i = 0; (i < rounds || caught < 200) && now_ms() < end; i++) {
		EQ(send(ends.client, "x", 1, 0), 1);
		EQ(recv(ends.server, &byte, 1, 0), 1);
		int fd = a_socket(SOCK_RDM);
		own.kept = fd;
		send(fd, "x", 1, MSG_DONTWAIT);
		recv(fd, &byte, 1, MSG_DONTWAIT);
		own.kept = -1;
		if (recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EBADF)
			continue; /* the handler has closed it */
		OK(close(fd));
	}
	no_alarm();
	IS(caught >= 200);
	/* Nothing is left undone. */
	EQ(sent_to(own.rdm, "z", 1, own.name), 1);
}

const struct test_case signal_cases[] = {
	{"signal/calls-in-a-handler", "signal-safety(7)", calls_in_a_handler, false},
	{"signal/receive-is-interrupted", "EINTR", receive_is_interrupted, false},
	{"signal/receive-is-restarted", "SA_RESTART", receive_is_restarted, false},
	{"signal/timed-receive-is-not-restarted", "signal(7)", timed_receive_is_not_restarted, false},
	{"signal/accept-is-interrupted", "EINTR", accept_is_interrupted, false},
	{"signal/accept-is-restarted", "SA_RESTART", accept_is_restarted, false},
	{"signal/connect-is-interrupted", "8.2", connect_is_interrupted, false},
	{"signal/send-is-interrupted", "EINTR", send_is_interrupted, false},
	{"signal/part-of-a-write", "EINTR", part_of_a_write, false},
	{"signal/waiting-for-events", "signal(7)", waiting_for_events, false},
	{"signal/of-messages", "fcntl(2)", signal_of_messages, false},
	{"signal/unblocked-while-waiting", "ppoll(2), pselect(2)", signals_let_in_while_waiting, false},
	{NULL, NULL, NULL, false},
};

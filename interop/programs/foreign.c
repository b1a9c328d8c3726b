/* The cost of a call on a descriptor that is not TIPC's: nanoseconds, or with -i instructions in user space, for each
 * call.
 *
 * Run it with and without the shim in turn; the difference is the cost of the shim. Instructions are counted by single
 * steps, so the numbers are exact and need no hardware counters. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ptrace.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int null_file, zero_file, empty_pipe[2], sockets[2], epoll;

static void call_read(void)
{
	char byte;
	if (read(zero_file, &byte, 1) != 1)
		abort();
}

static void call_write(void)
{
	if (write(null_file, "x", 1) != 1)
		abort();
}

static void call_writev(void)
{
	struct iovec part = {"x", 1};
	if (writev(null_file, &part, 1) != 1)
		abort();
}

static void call_send(void)
{
	if (send(sockets[0], "", 0, MSG_DONTWAIT) != 0)
		abort();
}

static void call_recv(void)
{
	char byte;
	if (recv(sockets[1], &byte, 1, MSG_DONTWAIT | MSG_PEEK) != -1 && errno != EAGAIN)
		abort();
}

static void call_poll(void)
{
	struct pollfd wait = {.fd = empty_pipe[0], .events = POLLIN};
	if (poll(&wait, 1, 0) != 0)
		abort();
}

static void call_select(void)
{
	fd_set in;
	struct timeval none = {0, 0};
	FD_ZERO(&in);
	FD_SET(empty_pipe[0], &in);
	if (select(empty_pipe[0] + 1, &in, NULL, NULL, &none) != 0)
		abort();
}

static void call_epoll_wait(void)
{
	struct epoll_event event;
	if (epoll_wait(epoll, &event, 1, 0) != 0)
		abort();
}

static void call_fcntl(void)
{
	if (fcntl(zero_file, F_GETFL) < 0)
		abort();
}

static void call_dup_and_close(void)
{
	int fd = dup(zero_file);
	if (fd < 0 || close(fd) != 0)
		abort();
}

static const struct {
	const char *name;
	void (*run)(void);
} calls[] = {
	{"read", call_read},	   {"write", call_write},	{"writev", call_writev},	  {"send", call_send},
	{"recv", call_recv},	   {"poll", call_poll},		{"select", call_select},	  {"epoll_wait", call_epoll_wait},
	{"fcntl", call_fcntl},	   {"dup+close", call_dup_and_close},
};

static double nanoseconds(void (*run)(void))
{
	struct timespec a, b;
	double best = 1e9;
	for (int round = 0; round < 20; round++) {
		clock_gettime(CLOCK_MONOTONIC, &a);
		for (int i = 0; i < 5000; i++)
			run();
		clock_gettime(CLOCK_MONOTONIC, &b);
		double each = ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / 5000;
		best = each < best ? each : best;
	}
	return best;
}

/* Single steps of a child that makes `count` calls. */
static long steps(void (*run)(void), int count)
{
	pid_t pid = fork();
	if (pid == 0) {
		run(); /* the first one binds the symbols */
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		for (int i = 0; i < count; i++)
			run();
		_exit(0);
	}
	int status;
	long n = 0;
	waitpid(pid, &status, 0);
	while (WIFSTOPPED(status)) {
		if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0)
			return -1;
		waitpid(pid, &status, 0);
		n++;
	}
	return n;
}

int main(int argc, char **argv)
{
	int count = argc > 1 && strcmp(argv[1], "-i") == 0;
	null_file = open("/dev/null", O_WRONLY);
	zero_file = open("/dev/zero", O_RDONLY);
	epoll = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLIN};
	if (null_file < 0 || zero_file < 0 || pipe(empty_pipe) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0 ||
	    epoll_ctl(epoll, EPOLL_CTL_ADD, empty_pipe[0], &event) != 0) {
		perror("foreign");
		return 1;
	}
	for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
		if (count)
			printf("%s %.1f\n", calls[i].name, (double)(steps(calls[i].run, 40) - steps(calls[i].run, 0)) / 40);
		else
			printf("%s %.1f\n", calls[i].name, nanoseconds(calls[i].run));
	}
	return 0;
}

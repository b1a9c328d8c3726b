/* Random calls on AF_TIPC sockets by several threads of one process: calls SEED SECONDS THREADS NUMBER PROCESSES RUN.
 * Prints how many calls it has made. Exit code 4 if a thread stays in a call.
 *
 * Sockets have fixed numbers, which hold /dev/null while there is no socket: a thread may use a number that another one
 * is closing, but never one that belongs to something else. Every socket has time limits, so each call ends. */
#include <errno.h>
#include <fcntl.h>
#include <linux/tipc.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FIRST = 100, SOCKETS = 40, THREADS = 16, MAIL = 400, NOTHING = 401, LENGTH = 70000, TYPE = 9500 };
/* Maximum number of children at a time. */
enum { CHILDREN = 8 };
/* Maximum time for which a blocking connect waits, milliseconds: Linux's default, which TIPC_CONN_TIMEOUT replaces. */
enum { CONNECT_MS = 8000 };
/* Seconds after which a call is stuck. */
enum { STUCK = 40 };

struct thread {
	pthread_t thread;
	uint64_t random;
	atomic_ullong calls;
	_Atomic(const char *) call;
	atomic_llong since;
	atomic_bool ended;
	char *data;
};

static struct thread threads[THREADS];
static atomic_int children;
static int processes, own_number, run_number;
static long long end_ms;

static long long now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static uint64_t draw(struct thread *t)
{
	t->random ^= t->random << 13;
	t->random ^= t->random >> 7;
	t->random ^= t->random << 17;
	return t->random >> 11;
}

static unsigned below(struct thread *t, unsigned limit)
{
	return (unsigned)(draw(t) % limit);
}

static int chance(struct thread *t, unsigned percent)
{
	return below(t, 100) < percent;
}

static int a_number(struct thread *t)
{
	return FIRST + (int)below(t, SOCKETS);
}

/* Gives a new descriptor one of the fixed numbers; closes it if none is free. */
static void keep(struct thread *t, int fd)
{
	if (fd < 0)
		return;
	struct timeval limit = {.tv_usec = 1000 * (1 + below(t, 5))};
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	dup2(fd, a_number(t));
	close(fd);
}

/* With room for the longest length that a call gets. */
union address {
	struct sockaddr_tipc tipc;
	struct sockaddr_storage room;
};

static union address an_address(struct thread *t)
{
	union address address = {.tipc = {.family = AF_TIPC}};
	struct sockaddr_tipc a = address.tipc;
	a.addrtype = chance(t, 95) ? 1 + below(t, 3) : (unsigned char)draw(t);
	a.scope = chance(t, 80) ? TIPC_CLUSTER_SCOPE : (signed char)(below(t, 9) - 4);
	uint32_t type = chance(t, 95) ? TYPE + below(t, 4) : chance(t, 50) ? below(t, 70) : (uint32_t)draw(t);
	uint32_t instance = chance(t, 90) ? below(t, 8) : (uint32_t)draw(t);
	if (a.addrtype == TIPC_SERVICE_ADDR) {
		a.addr.name.name.type = type;
		a.addr.name.name.instance = instance;
		a.addr.name.domain = chance(t, 90) ? 0 : (uint32_t)draw(t);
	} else if (a.addrtype == TIPC_SERVICE_RANGE) {
		a.addr.nameseq.type = type;
		a.addr.nameseq.lower = instance;
		a.addr.nameseq.upper = chance(t, 90) ? instance + below(t, 4) : (uint32_t)draw(t);
	} else {
		socklen_t length = sizeof address;
		if (chance(t, 80) && getsockname(a_number(t), (struct sockaddr *)&address, &length) == 0)
			a = address.tipc;
		else
			a.addr.id.ref = (uint32_t)draw(t);
	}
	if (chance(t, 2))
		a.family = (unsigned short)draw(t);
	address.tipc = a;
	return address;
}

static socklen_t an_address_length(struct thread *t)
{
	return chance(t, 95) ? sizeof(struct sockaddr_tipc) : below(t, 2 * sizeof(struct sockaddr_tipc));
}

static size_t a_length(struct thread *t)
{
	switch (below(t, 8)) {
	case 0:
		return 0;
	case 1:
		return below(t, LENGTH);
	case 2:
		return 66000 - 2 + below(t, 5);
	default:
		return below(t, 2000);
	}
}

static int flags(struct thread *t)
{
	static const int some[] = {MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL, MSG_TRUNC, MSG_EOR, MSG_MORE, MSG_NOSIGNAL, MSG_OOB, MSG_ERRQUEUE,
				   MSG_CTRUNC, MSG_DONTROUTE, MSG_CONFIRM};
	int result = chance(t, 70) ? MSG_DONTWAIT : 0;
	while (chance(t, 15))
		result |= some[below(t, sizeof some / sizeof *some)];
	return result;
}

static void open_one(struct thread *t)
{
	static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_RDM, SOCK_DGRAM};
	int type = chance(t, 97) ? types[below(t, 4)] : (int)below(t, 16);
	type |= chance(t, 30) ? SOCK_NONBLOCK : 0;
	type |= chance(t, 30) ? SOCK_CLOEXEC : 0;
	if (chance(t, 10)) {
		int pair[2];
		if (socketpair(AF_TIPC, type, 0, pair) == 0) {
			keep(t, pair[0]);
			keep(t, pair[1]);
		}
	} else {
		keep(t, socket(AF_TIPC, type, chance(t, 98) ? 0 : (int)below(t, 300)));
	}
}

static void set_up(struct thread *t, int fd)
{
	union address a = an_address(t);
	struct sockaddr *at = chance(t, 98) ? (struct sockaddr *)&a : NULL;
	socklen_t length = an_address_length(t), room = length;
	static const char *const names[] = {"bind", "bind", "listen", "connect", "connect", "accept4", "shutdown", "a name"};
	unsigned which = below(t, 8);
	atomic_store(&t->call, names[which]);
	switch (which) {
	case 0:
	case 1:
		bind(fd, at, length);
		break;
	case 2:
		listen(fd, (int)below(t, 10));
		break;
	case 3:
	case 4: {
		int mode = fcntl(fd, F_GETFL);
		if (chance(t, 97))
			fcntl(fd, F_SETFL, mode | O_NONBLOCK);
		connect(fd, at, length);
		break;
	}
	case 5:
		keep(t, accept4(fd, chance(t, 50) ? at : NULL, &room, chance(t, 50) ? SOCK_NONBLOCK : 0));
		break;
	case 6:
		shutdown(fd, chance(t, 80) ? SHUT_RDWR : (int)below(t, 4));
		break;
	default:
		chance(t, 50) ? getsockname(fd, at, &room) : getpeername(fd, at, &room);
	}
}

static struct msghdr a_message(struct thread *t, struct iovec parts[4], union address *a, char *control)
{
	struct msghdr m = {.msg_iov = parts, .msg_iovlen = below(t, 5)};
	for (size_t i = 0; i < m.msg_iovlen; i++)
		parts[i] = (struct iovec){t->data, a_length(t) / 2};
	if (chance(t, 50)) {
		m.msg_name = a;
		m.msg_namelen = an_address_length(t);
	}
	if (chance(t, 50)) {
		m.msg_control = control;
		m.msg_controllen = below(t, 256);
	}
	return m;
}

static void transfer(struct thread *t, int fd)
{
	union address a = an_address(t);
	struct sockaddr *at = chance(t, 50) ? (struct sockaddr *)&a : NULL;
	socklen_t length = an_address_length(t), room = sizeof a;
	char control[256] = {0};
	struct iovec parts[4];
	struct msghdr m = a_message(t, parts, &a, control);
	struct mmsghdr several[3] = {{.msg_hdr = m}, {.msg_hdr = m}, {.msg_hdr = m}};
	static const char *const names[] = {"sendto", "sendto", "write", "writev", "sendmsg", "sendmmsg",
					    "recvfrom", "recvfrom", "read", "readv", "recvmsg", "recvmmsg"};
	unsigned which = below(t, 12);
	atomic_store(&t->call, names[which]);
	switch (which) {
	case 0:
	case 1:
		sendto(fd, t->data, a_length(t), flags(t), at, at ? length : 0);
		break;
	case 2:
		(void)!write(fd, t->data, a_length(t));
		break;
	case 3:
		(void)!writev(fd, parts, (int)m.msg_iovlen);
		break;
	case 4:
		m.msg_control = NULL;
		m.msg_controllen = 0;
		sendmsg(fd, &m, flags(t));
		break;
	case 5:
		several[0].msg_hdr.msg_controllen = several[1].msg_hdr.msg_controllen = several[2].msg_hdr.msg_controllen = 0;
		sendmmsg(fd, several, below(t, 4), flags(t));
		break;
	case 6:
	case 7:
		recvfrom(fd, t->data, a_length(t), flags(t), at, &room);
		break;
	case 8:
		(void)!read(fd, t->data, a_length(t));
		break;
	case 9:
		(void)!readv(fd, parts, (int)m.msg_iovlen);
		break;
	case 10:
		recvmsg(fd, &m, flags(t));
		break;
	default: {
		struct timespec limit = {.tv_nsec = 1000000 * below(t, 4)};
		recvmmsg(fd, several, below(t, 4), flags(t), chance(t, 50) ? &limit : NULL);
	}
	}
}

static void options(struct thread *t, int fd)
{
	static const int levels[] = {SOL_TIPC, SOL_TIPC, SOL_TIPC, SOL_SOCKET, 6};
	uint32_t value[16];
	for (size_t i = 0; i < 16; i++)
		value[i] = chance(t, 70) ? below(t, 6) : (uint32_t)draw(t);
	int level = chance(t, 97) ? levels[below(t, 5)] : (int)below(t, 300);
	int name = level == SOL_TIPC ? 125 + (int)below(t, 18) : (int)below(t, 80);
	socklen_t length = chance(t, 80) ? 4 : below(t, sizeof value);
	if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO || name == 66 || name == 67))
		return; /* the time limits stay */
	if (level == SOL_TIPC && name == TIPC_CONN_TIMEOUT)
		value[0] %= CONNECT_MS + 1;
	switch (below(t, 5)) {
	case 0:
	case 1:
		getsockopt(fd, level, name, value, &length);
		break;
	case 2: {
		static const unsigned long requests[] = {SIOCGETLINKNAME, SIOCGETNODEID, FIONREAD, TIOCOUTQ};
		char request[128] = {0};
		memcpy(request, value, sizeof value);
		ioctl(fd, requests[below(t, 4)], request);
		break;
	}
	case 3: {
		int mode = fcntl(fd, F_GETFL);
		fcntl(fd, F_SETFL, chance(t, 50) ? mode | O_NONBLOCK : mode & ~O_NONBLOCK);
		fcntl(fd, F_SETFD, below(t, 2));
		break;
	}
	default:
		setsockopt(fd, level, name, value, length);
	}
}

static void wait_for(struct thread *t)
{
	struct pollfd several[6];
	fd_set sets[3];
	struct timeval limit = {.tv_usec = 1000 * below(t, 4)};
	nfds_t count = below(t, 7);
	for (size_t i = 0; i < 6; i++)
		several[i] = (struct pollfd){a_number(t), (short)draw(t), 0};
	switch (below(t, 3)) {
	case 0:
		poll(several, count, (int)below(t, 4));
		break;
	case 1:
		for (int i = 0; i < 3; i++) {
			FD_ZERO(&sets[i]);
			FD_SET(several[i].fd, &sets[i]);
			FD_SET(several[i + 3].fd, &sets[i]);
		}
		select(FIRST + SOCKETS, &sets[0], &sets[1], &sets[2], &limit);
		break;
	default: {
		int epoll = epoll_create1(EPOLL_CLOEXEC);
		struct epoll_event event = {.events = (uint32_t)draw(t)};
		for (size_t i = 0; i < count && i < 6; i++)
			epoll_ctl(epoll, EPOLL_CTL_ADD, several[i].fd, &event);
		epoll_wait(epoll, &event, 1, (int)below(t, 4));
		close(epoll);
	}
	}
}

static struct sockaddr_un mailbox(int number)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "utipc-soak-calls-%d-%d", run_number, number);
	return a;
}

/* Passes a descriptor to any of the processes, or receives one. */
static void mail(struct thread *t, int fd)
{
	char byte = 0;
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {{0}};
	struct iovec part = {&byte, 1};
	struct sockaddr_un to = mailbox((int)below(t, (unsigned)processes));
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
	if (chance(t, 50)) {
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		*c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(c), &fd, sizeof fd);
		m.msg_name = &to;
		m.msg_namelen = sizeof to;
		sendmsg(MAIL, &m, MSG_DONTWAIT);
		return;
	}
	if (recvmsg(MAIL, &m, MSG_DONTWAIT) != 1)
		return;
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_type == SCM_RIGHTS) {
		memcpy(&fd, CMSG_DATA(c), sizeof fd);
		keep(t, fd);
	}
}

static void step(struct thread *t, int may_fork);

/* A child that uses, or does not use, what it has inherited, and ends. */
static void have_child(struct thread *t)
{
	unsigned calls = chance(t, 30) ? 0 : below(t, 60);
	int execs = chance(t, 20);
	uint64_t seed = draw(t) | 1;
	if (atomic_fetch_add(&children, 1) >= CHILDREN) {
		atomic_fetch_sub(&children, 1);
		return;
	}
	pid_t child = fork();
	if (child == 0) {
		t->random = seed;
		for (unsigned i = 0; i < calls; i++) {
			alarm(STUCK); /* it may have the lock of a thread that it lacks: of the C library, for one */
			step(t, 0);
		}
		if (execs)
			execl("/bin/true", "true", (char *)NULL);
		_exit(0);
	}
	if (child < 0)
		atomic_fetch_sub(&children, 1);
}

/* Notes a child that has ended; returns whether one has. */
static int reap(int how)
{
	int status;
	pid_t child = waitpid(-1, &status, how);
	if (child <= 0)
		return child < 0 && errno == EINTR;
	atomic_fetch_sub(&children, 1);
	if (WIFSIGNALED(status)) {
		printf("a child was ended by signal %d\n", WTERMSIG(status));
		fflush(stdout);
		_exit(4);
	}
	return 1;
}

static void step(struct thread *t, int may_fork)
{
	static const char *const names[] = {"open", "set up", "transfer", "options", "wait", "copy", "close", "mail", "fork"};
	static const unsigned char shares[] = {12, 22, 34, 10, 8, 5, 5, 3, 1};
	unsigned drawn = below(t, 100), which = 0;
	while (drawn >= shares[which])
		drawn -= shares[which++];
	int fd = a_number(t);
	atomic_store(&t->since, now_ms());
	atomic_store(&t->call, names[which]);
	switch (which) {
	case 0:
		open_one(t);
		break;
	case 1:
		set_up(t, fd);
		break;
	case 2:
		transfer(t, fd);
		break;
	case 3:
		options(t, fd);
		break;
	case 4:
		wait_for(t);
		break;
	case 5:
		if (chance(t, 50))
			dup2(fd, a_number(t));
		else
			keep(t, chance(t, 50) ? dup(fd) : fcntl(fd, F_DUPFD_CLOEXEC, 3));
		break;
	case 6:
		if (chance(t, 50))
			dup2(NOTHING, fd);
		else
			close(fd);
		break;
	case 7:
		mail(t, fd);
		break;
	default:
		if (may_fork)
			have_child(t);
	}
	atomic_store(&t->call, NULL);
	atomic_fetch_add(&t->calls, 1);
}

static void *run(void *argument)
{
	struct thread *t = argument;
	while (now_ms() < end_ms)
		step(t, 1);
	atomic_store(&t->ended, 1);
	return NULL;
}

/* Whether all threads have ended; ends the process if one stays in a call. */
static int all_ended(int count)
{
	int ended = 0;
	for (int i = 0; i < count; i++) {
		const char *call = atomic_load(&threads[i].call);
		ended += atomic_load(&threads[i].ended);
		if (call && now_ms() - atomic_load(&threads[i].since) > STUCK * 1000LL) {
			printf("a thread stays in a call: %s\n", call);
			fflush(stdout);
			if (getenv("UTIPC_SOAK_KEEP"))
				pause();
			_exit(4);
		}
	}
	return ended == count;
}

int main(int argc, char **argv)
{
	if (argc != 7)
		return 2;
	uint64_t seed = strtoull(argv[1], NULL, 0);
	end_ms = now_ms() + (long long)(atof(argv[2]) * 1000);
	int count = atoi(argv[3]);
	own_number = atoi(argv[4]);
	processes = atoi(argv[5]);
	run_number = atoi(argv[6]);
	if (count < 1 || count > THREADS || processes < 1)
		return 2;
	struct sockaddr_un own = mailbox(own_number);
	int box = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (bind(box, (struct sockaddr *)&own, sizeof own) != 0 || dup2(box, MAIL) < 0 || dup2(nothing, NOTHING) < 0)
		return 3;
	close(box);
	close(nothing);
	for (int fd = FIRST; fd < FIRST + SOCKETS; fd++)
		dup2(NOTHING, fd);
	for (int i = 0; i < count; i++) {
		threads[i].random = seed * 0x9e3779b97f4a7c15u + (uint64_t)(own_number * THREADS + i + 1) * 0xbf58476d1ce4e5b9u;
		threads[i].data = calloc(1, LENGTH + 8);
		for (int j = 0; j < 8; j++)
			draw(&threads[i]);
		if (pthread_create(&threads[i].thread, NULL, run, &threads[i]) != 0)
			return 3;
	}
	while (!all_ended(count)) {
		struct timespec pause = {.tv_nsec = 5000000};
		while (reap(WNOHANG))
			continue;
		nanosleep(&pause, NULL);
	}
	unsigned long long calls = 0;
	for (int i = 0; i < count; i++) {
		pthread_join(threads[i].thread, NULL);
		calls += atomic_load(&threads[i].calls);
	}
	while (reap(0))
		continue;
	printf("%llu\n", calls);
	return 0;
}

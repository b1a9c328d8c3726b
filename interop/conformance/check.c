/* Checks, addresses, sockets, polling. */
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

_Noreturn void fail(const char *file, int line, const char *format, ...)
{
	char text[1024];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	printf("%s:%d: %s\n", file, line, text);
	fflush(stdout);
	_exit(1);
}

long check_ok(const char *file, int line, const char *what, long result)
{
	if (result < 0)
		fail(file, line, "%s, expected success, got %s", what, strerrorname_np(errno));
	return result;
}

void check_errno(const char *file, int line, const char *what, long result, int expected)
{
	int got = errno;
	if (result >= 0)
		fail(file, line, "%s, expected %s, got result %ld", what, strerrorname_np(expected), result);
	if (got != expected)
		fail(file, line, "%s, expected %s, got %s", what, strerrorname_np(expected), strerrorname_np(got));
}

void check_equal(const char *file, int line, const char *what, long long got, long long expected)
{
	if (got != expected)
		fail(file, line, "%s, expected %lld (%#llx), got %lld (%#llx)%s%s", what, expected, (unsigned long long)expected, got,
		     (unsigned long long)got, got == -1 ? ", errno " : "", got == -1 ? strerrorname_np(errno) : "");
}

void check_true(const char *file, int line, const char *what, bool holds)
{
	if (!holds)
		fail(file, line, "%s, expected it to hold, got false", what);
}

void check_bytes(const char *file, int line, const void *got, const void *expected, size_t length)
{
	const uint8_t *a = got, *b = expected;
	for (size_t i = 0; i < length; i++)
		if (a[i] != b[i])
			fail(file, line, "byte %zu of %zu, expected %#x, got %#x", i, length, b[i], a[i]);
}

uint32_t a_type(void)
{
	static uint32_t taken;
	return 0x20000000u + (((uint32_t)getpid() & 0xfffff) << 8) + taken++;
}

Address service(uint32_t type, uint32_t instance)
{
	Address a = {.family = AF_TIPC, .addrtype = TIPC_SERVICE_ADDR, .scope = TIPC_CLUSTER_SCOPE};
	a.addr.name.name.type = type;
	a.addr.name.name.instance = instance;
	return a;
}

Address range(uint32_t type, uint32_t lower, uint32_t upper)
{
	Address a = {.family = AF_TIPC, .addrtype = TIPC_SERVICE_RANGE, .scope = TIPC_CLUSTER_SCOPE};
	a.addr.nameseq.type = type;
	a.addr.nameseq.lower = lower;
	a.addr.nameseq.upper = upper;
	return a;
}

Address port(uint32_t ref, uint32_t node)
{
	Address a = {.family = AF_TIPC, .addrtype = TIPC_SOCKET_ADDR};
	a.addr.id.ref = ref;
	a.addr.id.node = node;
	return a;
}

Address scoped(Address address, int scope)
{
	address.scope = (signed char)scope;
	return address;
}

Address own_address(int fd)
{
	Address a = {0};
	socklen_t length = sizeof a;
	OK(getsockname(fd, ADDR(a), &length));
	EQ(length, sizeof a);
	return a;
}

Address peer_address(int fd)
{
	Address a = {0};
	socklen_t length = sizeof a;
	OK(getpeername(fd, ADDR(a), &length));
	EQ(length, sizeof a);
	return a;
}

int a_socket(int type)
{
	return (int)OK(socket(AF_TIPC, type, 0));
}

int bound(int type, Address address)
{
	int fd = a_socket(type);
	OK(bind(fd, ADDR(address), sizeof address));
	return fd;
}

int listener(int type, Address *address)
{
	*address = service(a_type(), 1);
	int fd = bound(type, *address);
	OK(listen(fd, 5));
	return fd;
}

struct pair connected_to(int type, int listening, Address address)
{
	struct pair ends = {.client = a_socket(type | SOCK_NONBLOCK)};
	ERR(connect(ends.client, ADDR(address), sizeof address), EINPROGRESS);
	ends.server = (int)OK(accept(listening, NULL, NULL));
	IS(events_of(ends.client, POLLOUT, 5000) & POLLOUT);
	blocking(ends.client, true);
	return ends;
}

struct pair connected(int type)
{
	Address address;
	int listening = listener(type, &address);
	struct pair ends = connected_to(type, listening, address);
	close(listening);
	return ends;
}

void blocking(int fd, bool yes)
{
	int flags = (int)OK(fcntl(fd, F_GETFL));
	OK(fcntl(fd, F_SETFL, yes ? flags & ~O_NONBLOCK : flags | O_NONBLOCK));
}

void set_timeout(int fd, int option, int ms)
{
	struct timeval time = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
	OK(setsockopt(fd, SOL_SOCKET, option, &time, sizeof time));
}

void set_option(int fd, int option, uint32_t value)
{
	OK(setsockopt(fd, SOL_TIPC, option, &value, sizeof value));
}

uint32_t get_option(int fd, int option)
{
	uint32_t value = 0xdeadbeef;
	socklen_t length = sizeof value;
	OK(getsockopt(fd, SOL_TIPC, option, &value, &length));
	EQ(length, sizeof value);
	return value;
}

int get_socket_option(int fd, int option)
{
	int value = -12345;
	socklen_t length = sizeof value;
	OK(getsockopt(fd, SOL_SOCKET, option, &value, &length));
	EQ(length, sizeof value);
	return value;
}

long sent_to(int fd, const void *data, size_t length, Address to)
{
	return sendto(fd, data, length, 0, ADDR(to), sizeof to);
}

int events_of(int fd, int asked, int ms)
{
	struct pollfd wait = {.fd = fd, .events = (short)asked};
	OK(poll(&wait, 1, ms));
	return wait.revents;
}

void arrives(int fd)
{
	IS(events_of(fd, POLLIN, 5000) & POLLIN);
}

bool quiet(int fd)
{
	return events_of(fd, POLLIN, 150) == 0;
}

long long now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

void nap(int ms)
{
	struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
	nanosleep(&time, NULL);
}

const struct message *receive(int fd, int flags)
{
	static struct message m;
	memset(&m, 0, offsetof(struct message, data));
	union {
		char space[4096];
		struct cmsghdr align;
	} control;
	struct iovec part = {.iov_base = m.data, .iov_len = sizeof m.data};
	struct msghdr head = {.msg_name = &m.from, .msg_namelen = sizeof m.from + sizeof m.member, .msg_iov = &part, .msg_iovlen = 1};
	head.msg_control = control.space;
	head.msg_controllen = sizeof control.space;
	m.length = recvmsg(fd, &head, flags);
	if (m.length < 0)
		return &m;
	m.flags = head.msg_flags;
	m.from_length = head.msg_namelen;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&head); c; c = CMSG_NXTHDR(&head, c)) {
		EQ(c->cmsg_level, SOL_TIPC);
		size_t length = c->cmsg_len - CMSG_LEN(0);
		switch (c->cmsg_type) {
		case TIPC_ERRINFO:
			EQ(length, sizeof m.error);
			m.has_error = true;
			memcpy(m.error, CMSG_DATA(c), sizeof m.error);
			break;
		case TIPC_RETDATA:
			IS(length <= sizeof m.returned_data);
			m.has_returned = true;
			m.returned = length;
			memcpy(m.returned_data, CMSG_DATA(c), length);
			break;
		case TIPC_DESTNAME:
			EQ(length, sizeof m.name);
			m.has_name = true;
			memcpy(m.name, CMSG_DATA(c), sizeof m.name);
			break;
		default:
			EQ(c->cmsg_type, TIPC_ERRINFO);
		}
	}
	return &m;
}

void fill(uint8_t *data, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		data[i] = (uint8_t)(seed + i * 7 + (i >> 8) * 13);
}

bool filled(const uint8_t *data, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		if (data[i] != (uint8_t)(seed + i * 7 + (i >> 8) * 13))
			return false;
	return true;
}

pid_t child(void (*run)(int), int argument)
{
	fflush(stdout);
	pid_t pid = (pid_t)OK(fork());
	if (pid == 0) {
		run(argument);
		fflush(stdout);
		_exit(0);
	}
	return pid;
}

void reap(pid_t pid)
{
	int status = -1;
	OK(waitpid(pid, &status, 0));
	EQ(status, 0);
}

pid_t helper(const char *what, int fd)
{
	char number[16];
	snprintf(number, sizeof number, "%d", fd);
	fflush(stdout);
	pid_t pid = (pid_t)OK(fork());
	if (pid == 0) {
		execl("/proc/self/exe", "conformance", "--helper", what, number, (char *)NULL);
		fail(__FILE__, __LINE__, "exec: %s", strerrorname_np(errno));
	}
	return pid;
}

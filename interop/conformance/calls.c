/* Other calls that read or write: vectors, several messages, files, empty writes. */
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <time.h>

static uint8_t data[70000];

static void read_and_write(void)
{
	static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
	for (size_t i = 0; i < COUNT(types); i++) {
		struct pair ends = connected(types[i]);
		EQ(write(ends.client, "hello", 5), 5);
		EQ(read(ends.server, data, sizeof data), 5);
		SAME(data, "hello", 5);
		EQ(write(ends.client, "", 0), 0);
	}
	Address name = service(a_type(), 1);
	int to = bound(SOCK_RDM, name), from = a_socket(SOCK_RDM);
	OK(connect(from, ADDR(name), sizeof name));
	EQ(write(from, "hello", 5), 5);
	EQ(read(to, data, 3), 3); /* the rest is lost */
	EQ(write(from, "x", 1), 1);
	EQ(read(to, data, 3), 1);
}

static void vectors(void)
{
	struct pair ends = connected(SOCK_SEQPACKET);
	struct iovec out[] = {{"abc", 3}, {NULL, 0}, {"defg", 4}, {"h", 1}};
	char one[5], two[10];
	struct iovec in[] = {{one, sizeof one}, {two, sizeof two}};
	EQ(writev(ends.client, out, 4), 8);
	EQ(readv(ends.server, in, 2), 8);
	SAME(one, "abcde", 5);
	SAME(two, "fgh", 3);
	EQ(writev(ends.client, out, 0), 0);
	volatile int negative = -1, many = 1025; /* volatile: the compiler would reject constants */
	ERR(writev(ends.client, out, negative), EINVAL);
	ERR(writev(ends.client, out, many), EINVAL);
	ERR(readv(ends.server, in, negative), EINVAL);
	ends = connected(SOCK_STREAM);
	EQ(writev(ends.client, out, 4), 8);
	EQ(readv(ends.server, in, 2), 8);
	SAME(two, "fgh", 3);
}

static void messages_in_parts(void)
{
	Address name = service(a_type(), 1), from_address;
	int to = bound(SOCK_RDM, name), from = a_socket(SOCK_RDM);
	struct iovec out[] = {{"abc", 3}, {"defgh", 5}};
	struct msghdr head = {.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = out, .msg_iovlen = 2};
	EQ(sendmsg(from, &head, 0), 8);
	char one[2], two[10];
	struct iovec in[] = {{one, 2}, {two, 10}};
	head = (struct msghdr){.msg_name = &from_address, .msg_namelen = sizeof from_address, .msg_iov = in, .msg_iovlen = 2};
	EQ(recvmsg(to, &head, 0), 8);
	SAME(two, "cdefgh", 6);
	EQ(head.msg_namelen, sizeof from_address);
	EQ(head.msg_controllen, 0);
	head = (struct msghdr){.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = out, .msg_iovlen = 1025};
	ERR(sendmsg(from, &head, 0), EMSGSIZE);
	ERR(recvmsg(to, &head, 0), EMSGSIZE);
	head = (struct msghdr){.msg_name = &name, .msg_namelen = sizeof name};
	EQ(sendmsg(from, &head, 0), 0);
	head.msg_namelen = 0;
	ERR(sendmsg(from, &head, 0), EDESTADDRREQ);
}

static void control_data_is_ignored(void)
{
	/* Control data of a send is ignored: even an invalid header is not an error. */
	Address name = service(a_type(), 1);
	int to = bound(SOCK_RDM, name), from = a_socket(SOCK_RDM);
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr header;
	} control = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))}};
	memcpy(CMSG_DATA(&control.header), &to, sizeof to);
	struct iovec part = {"x", 1};
	struct msghdr head = {.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = &part, .msg_iovlen = 1,
			      .msg_control = control.space, .msg_controllen = sizeof control.space};
	EQ(sendmsg(from, &head, 0), 1);
	const struct message *m = receive(to, 0);
	EQ(m->length, 1);
	IS(m->has_name);
}

static void many_sent(void)
{
	Address name = service(a_type(), 1), unbound = service(a_type(), 1);
	int to = bound(SOCK_RDM, name), from = a_socket(SOCK_RDM);
	struct mmsghdr heads[6];
	struct iovec parts[6];
	memset(heads, 0, sizeof heads);
	for (size_t i = 0; i < 6; i++) {
		parts[i] = (struct iovec){&"abcdef"[i], 6 - i};
		heads[i].msg_hdr = (struct msghdr){.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = &parts[i], .msg_iovlen = 1};
	}
	EQ(sendmmsg(from, heads, 6, 0), 6);
	for (size_t i = 0; i < 6; i++) {
		EQ(heads[i].msg_len, 6 - i);
		EQ(receive(to, 0)->length, 6 - i);
	}
	/* The first failure ends the call; a failure of the first message is the call's error. */
	heads[2].msg_hdr.msg_name = &unbound;
	EQ(sendmmsg(from, heads, 6, 0), 2);
	ERR(sendmmsg(from, heads + 2, 1, 0), EHOSTUNREACH);
	EQ(sendmmsg(from, heads, 0, 0), 0);
}

static void many_received(void)
{
	Address name = service(a_type(), 1);
	int to = bound(SOCK_RDM, name), from = a_socket(SOCK_RDM);
	for (int i = 1; i <= 5; i++)
		EQ(sent_to(from, "abcdef", (size_t)i, name), i);
	nap(100);
	struct mmsghdr heads[8];
	struct iovec parts[8];
	Address sources[8], own = own_address(from);
	char texts[8][4];
	memset(heads, 0, sizeof heads);
	for (size_t i = 0; i < 8; i++) {
		parts[i] = (struct iovec){texts[i], 4};
		heads[i].msg_hdr = (struct msghdr){.msg_name = &sources[i], .msg_namelen = sizeof own, .msg_iov = &parts[i], .msg_iovlen = 1};
	}
	EQ(recvmmsg(to, heads, 8, MSG_DONTWAIT, NULL), 5);
	for (unsigned i = 0; i < 5; i++) {
		EQ(heads[i].msg_len, i < 4 ? i + 1 : 4);
		EQ(heads[i].msg_hdr.msg_flags, i == 4 ? MSG_TRUNC : 0);
		SAME(&sources[i], &own, sizeof own);
	}
	ERR(recvmmsg(to, heads, 8, MSG_DONTWAIT, NULL), EAGAIN);
	for (int i = 1; i <= 3; i++)
		EQ(sent_to(from, "abcdef", (size_t)i, name), i);
	EQ(recvmmsg(to, heads, 2, 0, NULL), 2);
	EQ(recvmmsg(to, heads, 8, MSG_WAITFORONE, NULL), 1);
	EQ(sent_to(from, "x", 1, name), 1);
	blocking(to, false);
	arrives(to);
	EQ(recvmmsg(to, heads, 8, 0, &(struct timespec){.tv_sec = 5}), 1);
	ERR(recvmmsg(to, heads, 8, 0, &(struct timespec){.tv_nsec = -1}), EINVAL);
}

static int file_of(size_t length)
{
	int file = (int)OK(memfd_create("conformance", 0));
	fill(data, length, 6);
	EQ(write(file, data, length), length);
	EQ(lseek(file, 0, SEEK_SET), 0);
	return file;
}

static void whole_file(void)
{
	struct pair ends = connected(SOCK_STREAM);
	int file = file_of(50000);
	off_t offset = 10000;
	EQ(sendfile(ends.client, file, &offset, 30000), 30000);
	EQ(offset, 40000);
	EQ(recv(ends.server, data, 30000, MSG_WAITALL), 30000);
	file_of(50000);
	EQ(sendfile(ends.client, file, NULL, 100000), 50000);
	EQ(sendfile(ends.client, file, NULL, 100), 0);
	static uint8_t got[50000];
	EQ(recv(ends.server, got, sizeof got, MSG_WAITALL), sizeof got);
	IS(filled(got, sizeof got, 6));
	ERR(sendfile(a_socket(SOCK_STREAM), file, &(off_t){0}, 10), ENOTCONN);
	ERR(sendfile(file, ends.client, NULL, 10), EINVAL);
}

static void file_as_packets(void)
{
	struct pair ends = connected(SOCK_SEQPACKET);
	int file = file_of(3000);
	EQ(sendfile(ends.client, file, NULL, 3000), 3000);
	size_t got = 0;
	while (got < 3000)
		got += (size_t)OK(recv(ends.server, data + got, sizeof data - got, 0));
	EQ(got, 3000);
	IS(filled(data, 3000, 6));
}

static void spliced(void)
{
	static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
	for (size_t i = 0; i < COUNT(types); i++) {
		struct pair ends = connected(types[i]);
		int pipes[2], file = file_of(10);
		EQ(pipe(pipes), 0);
		fill(data, 10000, 3);
		/* From a pipe: its contents, or a part of them. */
		ERR(splice(pipes[0], NULL, ends.client, NULL, 100, SPLICE_F_NONBLOCK), EAGAIN);
		EQ(write(pipes[1], data, 10000), 10000);
		EQ(splice(pipes[0], NULL, ends.client, NULL, 4000, 0), 4000);
		EQ(splice(pipes[0], NULL, ends.client, NULL, 20000, 0), 6000);
		static uint8_t got[10000];
		for (size_t n = 0; n < sizeof got;)
			n += (size_t)OK(recv(ends.server, got + n, sizeof got - n, 0));
		SAME(got, data, sizeof got);
		/* To a pipe. */
		EQ(send(ends.server, "answer", 6, 0), 6);
		EQ(splice(ends.client, NULL, pipes[1], NULL, 1000, 0), 6);
		EQ(read(pipes[0], got, sizeof got), 6);
		SAME(got, "answer", 6);
		blocking(ends.client, false);
		ERR(splice(ends.client, NULL, pipes[1], NULL, 1000, 0), EAGAIN);
		/* Misuse. */
		EQ(splice(pipes[0], NULL, ends.client, NULL, 0, 0), 0);
		ERR(splice(file, NULL, ends.client, NULL, 10, 0), EINVAL);
		ERR(splice(ends.client, NULL, file, NULL, 10, 0), EINVAL);
		ERR(splice(ends.client, NULL, ends.server, NULL, 10, 0), EINVAL);
		close(pipes[1]);
		EQ(splice(pipes[0], NULL, ends.client, NULL, 10, 0), 0);
		/* Bytes that cannot be sent stay in the pipe. */
		EQ(pipe(pipes), 0);
		EQ(write(pipes[1], "kept", 4), 4);
		ERR(splice(pipes[0], NULL, a_socket(types[i]), NULL, 4, 0), ENOTCONN);
		EQ(read(pipes[0], got, sizeof got), 4);
	}
}

static void stdio(void)
{
	struct pair ends = connected(SOCK_STREAM);
	FILE *out = fdopen(ends.client, "w"), *in = fdopen(ends.server, "r");
	IS(out && in);
	IS(fprintf(out, "line %d\nline %d\n", 1, 2) == 14);
	EQ(fflush(out), 0);
	char line[20];
	IS(fgets(line, sizeof line, in) != NULL);
	SAME(line, "line 1\n", 8);
	IS(fgets(line, sizeof line, in) != NULL);
	SAME(line, "line 2\n", 8);
	fclose(out);
	IS(fgets(line, sizeof line, in) == NULL);
	IS(ferror(in));
}

static void descriptor_lines(void)
{
	struct pair ends = connected(SOCK_STREAM);
	EQ(dprintf(ends.client, "%s-%d", "number", 7), 8);
	EQ(recv(ends.server, data, 8, MSG_WAITALL), 8);
	SAME(data, "number-7", 8);
	/* More arguments than fit in registers, of both kinds. */
	int length = dprintf(ends.client, "%d %d %s %c %ld %d %x|%.1f %g %g %g %g %g %g %g %g %Lg", 1, 2, "three", '4', 5L, 6, 7, 0.5, 1.0, 2.0, 3.0,
			     4.0, 5.0, 6.0, 7.0, 8.25, 9.5L);
	EQ(length, 44);
	EQ(recv(ends.server, data, (size_t)length, MSG_WAITALL), length);
	SAME(data, "1 2 three 4 5 6 7|0.5 1 2 3 4 5 6 7 8.25 9.5", 44);
	EQ(dprintf(ends.client, "%s", ""), 0);
	EQ(dprintf(ends.client, "%*d", 100000, 1), 100000);
	for (size_t i = 0; i < 100000 / 1000; i++)
		EQ(recv(ends.server, data, 1000, MSG_WAITALL), 1000);
	close(ends.server);
	arrives(ends.client);
	ERR(dprintf(ends.client, "late"), EPIPE);
	int pipes[2];
	OK(pipe(pipes));
	EQ(dprintf(pipes[1], "%s %.2f", "elsewhere", 1.25), 14);
	EQ(read(pipes[0], data, sizeof data), 14);
	SAME(data, "elsewhere 1.25", 14);
}

static void places_and_flags(void)
{
	struct pair ends = connected(SOCK_STREAM);
	struct iovec parts[] = {{(char *)"one", 3}, {(char *)"two", 3}}, room[] = {{data, 2}, {data + 2, 10}};
	ERR(pread(ends.server, data, 1, 0), ESPIPE);
	ERR(pwrite(ends.server, data, 1, 0), ESPIPE);
	ERR(preadv(ends.server, room, 2, 0), ESPIPE);
	ERR(pwritev(ends.server, parts, 2, 0), ESPIPE);
	ERR(preadv2(ends.server, room, 2, 7, 0), ESPIPE);
	ERR(lseek(ends.server, 0, SEEK_CUR), ESPIPE);
	/* Without a position they equal readv and writev. */
	EQ(pwritev2(ends.client, parts, 2, -1, 0), 6);
	EQ(preadv2(ends.server, room, 2, -1, 0), 6);
	SAME(data, "onetwo", 6);
	ERR(preadv2(ends.server, room, 2, -1, 1 << 20), EOPNOTSUPP);
}

/* The variants of calls that the C library's headers use with -D_FORTIFY_SOURCE, and its aliases. */
long __recv_chk(int, void *, size_t, size_t, int), __read_chk(int, void *, size_t, size_t);
long __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);
int __poll_chk(struct pollfd *, nfds_t, int, size_t), __dprintf_chk(int, int, const char *, ...);
int __ppoll_chk(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);
long __read(int, void *, size_t), __write(int, const void *, size_t), __send(int, const void *, size_t, int);
int __poll(struct pollfd *, nfds_t, int), __dup2(int, int), __close(int), __fcntl(int, int, ...);

static void checked_variants(void)
{
	struct pair ends = connected(SOCK_SEQPACKET);
	struct pollfd wait = {.fd = ends.server, .events = POLLIN | POLLOUT | POLLRDHUP};
	EQ(__dprintf_chk(ends.client, 1, "%s %d %d %d %d %.1f", "text", 1, 2, 3, 4, 1.5), 16);
	EQ(__poll_chk(&wait, 1, 5000, sizeof wait), 1);
	EQ(__recv_chk(ends.server, data, 20, sizeof data, 0), 16);
	SAME(data, "text 1 2 3 4 1.5", 16);
	for (int i = 0; i < 3; i++)
		EQ(__send(ends.client, "x", 1, 0), 1);
	EQ(__ppoll_chk(&wait, 1, NULL, NULL, sizeof wait), 1);
	EQ(__recvfrom_chk(ends.server, data, 20, sizeof data, 0, NULL, NULL), 1);
	EQ(__read_chk(ends.server, data, 20, sizeof data), 1);
	EQ(__read(ends.server, data, 20), 1);
	EQ(__write(ends.server, "yz", 2), 2);
	int copy = (int)OK(__fcntl(ends.client, F_DUPFD, 100));
	EQ(recv(copy, data, 20, 0), 2);
	OK(__dup2(ends.server, copy));
	OK(__close(ends.server));
	wait.fd = copy;
	EQ(__poll(&wait, 1, 0), 1);
	EQ(wait.revents, POLLOUT);
	OK(__close(copy));
	arrives(ends.client);
	ERR(recv(ends.client, data, 1, 0), ECONNRESET);
}

static void other_controls(void)
{
	int fd = a_socket(SOCK_STREAM), value = 0;
	ERR(ioctl(fd, FIONREAD, &value), ENOTTY);
	ERR(ioctl(fd, TIOCOUTQ, &value), ENOTTY);
	ERR(ioctl(fd, 0x5401 /* TCGETS */, &value), ENOTTY);
	EQ(isatty(fd), 0);
	EQ(errno, ENOTTY);
	fd = a_socket(SOCK_RDM);
	ERR(ioctl(fd, FIONREAD, &value), ENOTTY);
}

static void node_identity(void)
{
	struct tipc_sioc_nodeid_req request = {.peer = 0x01234567};
	int fd = a_socket(SOCK_RDM);
	ERR(ioctl(fd, SIOCGETNODEID, NULL), EFAULT);
	/* A node that has no address yet knows no other nodes and accepts all. */
	if (own_address(fd).addr.id.node == 0)
		return;
	ERR(ioctl(fd, SIOCGETNODEID, &request), EADDRNOTAVAIL);
	request.peer = own_address(fd).addr.id.node;
	OK(ioctl(fd, SIOCGETNODEID, &request));
	IS(request.node_id[0] != 0);
	request.peer = 0; /* in other calls 0 is this node */
	ERR(ioctl(fd, SIOCGETNODEID, &request), EADDRNOTAVAIL);
}

static void link_name(void)
{
	struct tipc_sioc_ln_req request = {.peer = 0x01234567, .bearer_id = 0};
	int fd = a_socket(SOCK_STREAM);
	ERR(ioctl(fd, SIOCGETLINKNAME, &request), EADDRNOTAVAIL);
	request.peer = own_address(fd).addr.id.node;
	ERR(ioctl(fd, SIOCGETLINKNAME, &request), EADDRNOTAVAIL);
	ERR(ioctl(fd, SIOCGETLINKNAME, NULL), EFAULT);
}

const struct test_case call_cases[] = {
	{"call/read-and-write", "read(2), write(2)", read_and_write, false},
	{"call/vectors", "readv(2), writev(2)", vectors, false},
	{"call/messages-in-parts", "sendmsg(2), recvmsg(2)", messages_in_parts, false},
	{"call/control-data-is-ignored", "8.10", control_data_is_ignored, false},
	{"call/many-sent", "sendmmsg(2)", many_sent, false},
	{"call/many-received", "recvmmsg(2)", many_received, false},
	{"call/whole-file", "sendfile(2)", whole_file, false},
	{"call/file-as-packets", "sendfile(2)", file_as_packets, false},
	{"call/splice", "splice(2)", spliced, false},
	{"call/stdio", "fdopen(3)", stdio, false},
	{"call/descriptor-lines", "dprintf(3)", descriptor_lines, false},
	{"call/places-and-flags", "preadv2(2)", places_and_flags, false},
	{"call/checked-variants", "feature_test_macros(7)", checked_variants, false},
	{"ioctl/other", "8.9", other_controls, false},
	{"ioctl/unknown-node", "8.9", node_identity, false},
	{"ioctl/unknown-link", "8.9", link_name, false},
	{NULL, NULL, NULL, false},
};

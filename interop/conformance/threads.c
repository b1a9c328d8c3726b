/* Threads that share sockets. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 6
#define EACH 200

struct work {
	int fd, id;
	Address to;
	unsigned char *seen; /* EACH bytes for each sender */
	pthread_mutex_t *lock;
	int left;
};

static void *send_numbers(void *argument)
{
	struct work *w = argument;
	for (uint32_t i = 0; i < EACH; i++) {
		uint32_t words[2] = {(uint32_t)w->id, i};
		EQ(w->to.family ? sent_to(w->fd, words, sizeof words, w->to) : send(w->fd, words, sizeof words, 0), sizeof words);
	}
	return NULL;
}

static void many_senders(void)
{
	Address name = service(a_type(), 1);
	struct pair ends = connected(SOCK_SEQPACKET);
	struct {
		int from, to;
		Address name;
	} both[] = {{a_socket(SOCK_RDM), bound(SOCK_RDM, name), name}, {.from = ends.client, .to = ends.server}};
	for (size_t k = 0; k < COUNT(both); k++) {
		pthread_t threads[THREADS];
		struct work works[THREADS];
		uint32_t next[THREADS] = {0};
		for (int i = 0; i < THREADS; i++) {
			works[i] = (struct work){.fd = both[k].from, .id = i, .to = both[k].name};
			EQ(pthread_create(&threads[i], NULL, send_numbers, &works[i]), 0);
		}
		for (int i = 0; i < THREADS * EACH; i++) {
			uint32_t words[2];
			EQ(recv(both[k].to, words, sizeof words, 0), sizeof words);
			IS(words[0] < THREADS);
			EQ(words[1], next[words[0]]); /* messages of one thread keep their order */
			next[words[0]]++;
		}
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
	}
}

static void *take_some(void *argument)
{
	struct work *w = argument;
	for (int i = 0; i < w->left; i++) {
		uint32_t words[2];
		EQ(recv(w->fd, words, sizeof words, 0), sizeof words);
		pthread_mutex_lock(w->lock);
		w->seen[words[1]]++;
		pthread_mutex_unlock(w->lock);
	}
	return NULL;
}

static void many_receivers(void)
{
	static unsigned char seen[EACH];
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	Address name = service(a_type(), 1);
	int to = bound(SOCK_RDM, name);
	pthread_t threads[4];
	struct work works[4], sender = {.fd = a_socket(SOCK_RDM), .to = name};
	for (int i = 0; i < 4; i++) {
		works[i] = (struct work){.fd = to, .seen = seen, .lock = &lock, .left = EACH / 4};
		EQ(pthread_create(&threads[i], NULL, take_some, &works[i]), 0);
	}
	send_numbers(&sender);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < EACH; i++)
		EQ(seen[i], 1);
}

static void *read_bytes(void *fd)
{
	char part[1000];
	for (size_t got = 0; got < 200000;)
		got += (size_t)OK(recv(*(int *)fd, part, sizeof part, 0));
	return NULL;
}

static void *write_bytes(void *fd)
{
	static const char part[1000];
	for (size_t sent = 0; sent < 200000;)
		sent += (size_t)OK(send(*(int *)fd, part, sizeof part, 0));
	return NULL;
}

static void both_ways_at_once(void)
{
	struct pair ends = connected(SOCK_STREAM);
	pthread_t threads[4];
	EQ(pthread_create(&threads[0], NULL, read_bytes, &ends.client), 0);
	EQ(pthread_create(&threads[1], NULL, read_bytes, &ends.server), 0);
	EQ(pthread_create(&threads[2], NULL, write_bytes, &ends.client), 0);
	EQ(pthread_create(&threads[3], NULL, write_bytes, &ends.server), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

static void *accept_and_echo(void *listening)
{
	for (int i = 0; i < 5; i++) {
		char text[4];
		int fd = (int)OK(accept(*(int *)listening, NULL, NULL));
		EQ(recv(fd, text, 4, MSG_WAITALL), 4);
		EQ(send(fd, text, 4, 0), 4);
		recv(fd, text, 4, 0);
		close(fd);
	}
	return NULL;
}

static void many_accept(void)
{
	Address address;
	int listening = listener(SOCK_STREAM, &address);
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		EQ(pthread_create(&threads[i], NULL, accept_and_echo, &listening), 0);
	for (int i = 0; i < 20; i++) {
		char text[4];
		int fd = a_socket(SOCK_STREAM);
		OK(connect(fd, ADDR(address), sizeof address));
		EQ(send(fd, "ping", 4, 0), 4);
		EQ(recv(fd, text, 4, MSG_WAITALL), 4);
		close(fd);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

static void *open_and_close(void *argument)
{
	(void)argument;
	for (int i = 0; i < 50; i++) {
		Address name = service(0x30000000u + (uint32_t)getpid(), (uint32_t)i);
		int fd = bound(SOCK_RDM, name);
		EQ(sent_to(fd, "x", 1, own_address(fd)), 1);
		char byte;
		EQ(recv(fd, &byte, 1, 0), 1);
		close(fd);
	}
	return NULL;
}

static void open_and_close_at_once(void)
{
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		EQ(pthread_create(&threads[i], NULL, open_and_close, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

static void *receive_one(void *argument)
{
	char byte;
	EQ(recv(*(int *)argument, &byte, 1, 0), 1);
	return NULL;
}

/* A thread that sleeps in a receive, while another polls the same socket and finds nothing. */
static void asleep_beside_a_thread_that_polls(void)
{
	struct pair ends = connected(SOCK_SEQPACKET);
	pthread_t thread;
	char byte;
	for (int i = 0; i < 50; i++) {
		EQ(send(ends.server, "x", 1, 0), 1);
		arrives(ends.client);
		EQ(recv(ends.client, &byte, 1, 0), 1);
	}
	for (int i = 0; i < 5; i++) {
		EQ(pthread_create(&thread, NULL, receive_one, &ends.client), 0);
		nap(50); /* until it sleeps; if it does not yet, there is nothing to see */
		for (int j = 0; j < 3; j++) {
			ERR(recv(ends.client, &byte, 1, MSG_DONTWAIT), EAGAIN);
			EQ(events_of(ends.client, POLLIN, 0), 0);
		}
		EQ(send(ends.server, "x", 1, 0), 1);
		EQ(pthread_join(thread, NULL), 0);
	}
}

/* A thread in a call on a socket that another thread closes. The socket stays until the last call on it returns: the
 * kernel counts the calls of a process with several threads as users of the open file. */
struct caller {
	pthread_t thread;
	int fd;
	long result;
	int error;
	char byte;
};

static void begin(struct caller *caller, void *(*call)(void *), int fd)
{
	*caller = (struct caller){.fd = fd};
	EQ(pthread_create(&caller->thread, NULL, call, caller), 0);
}

static long end(struct caller *caller)
{
	EQ(pthread_join(caller->thread, NULL), 0);
	errno = caller->error;
	return caller->result;
}

static void *accept_once(void *argument)
{
	struct caller *caller = argument;
	caller->result = accept(caller->fd, NULL, NULL);
	caller->error = errno;
	return NULL;
}

static void *receive_once(void *argument)
{
	struct caller *caller = argument;
	caller->result = recv(caller->fd, &caller->byte, 1, 0);
	caller->error = errno;
	return NULL;
}

static void *poll_once(void *argument)
{
	struct caller *caller = argument;
	struct pollfd wait = {.fd = caller->fd, .events = POLLIN};
	caller->result = poll(&wait, 1, 10000);
	caller->error = errno;
	caller->byte = (char)wait.revents;
	return NULL;
}

static void *send_once(void *argument)
{
	static char data[60000];
	struct caller *caller = argument;
	caller->result = send(caller->fd, data, sizeof data, 0);
	caller->error = errno;
	return NULL;
}

/* Connects, and exchanges a byte with the socket that `accepted` yields. */
static void meet(Address address, struct caller *accepted)
{
	char byte;
	int fd = a_socket(SOCK_STREAM);
	OK(connect(fd, ADDR(address), sizeof address));
	int other = (int)OK(end(accepted));
	EQ(send(fd, "x", 1, 0), 1);
	EQ(recv(other, &byte, 1, 0), 1);
	close(other);
	close(fd);
}

/* The name is withdrawn; within 2 s, because the last user of the file may still be returning. */
static void gone(int type, Address address)
{
	for (int i = 0; i < 200; i++) {
		int fd = a_socket(type);
		long done = type == SOCK_RDM ? sent_to(fd, "x", 1, address) : connect(fd, ADDR(address), sizeof address);
		close(fd);
		if (done < 0)
			return;
		nap(10);
	}
	IS(false);
}

static void close_beside_accept(void)
{
	Address address;
	struct caller first, second;
	char byte;
	int fd = listener(SOCK_STREAM, &address);
	begin(&first, accept_once, fd);
	nap(100); /* until it waits; if it does not yet, it fails with EBADF below */
	begin(&second, accept_once, fd);
	nap(100);
	OK(close(fd));
	ERR(accept(fd, NULL, NULL), EBADF);
	int one = a_socket(SOCK_STREAM), two = a_socket(SOCK_STREAM);
	OK(connect(one, ADDR(address), sizeof address));
	OK(connect(two, ADDR(address), sizeof address)); /* the socket stays while the second one waits */
	int accepted[] = {(int)OK(end(&first)), (int)OK(end(&second))};
	EQ(send(one, "x", 1, 0), 1);
	EQ(send(two, "x", 1, 0), 1);
	for (size_t i = 0; i < COUNT(accepted); i++)
		EQ(recv(accepted[i], &byte, 1, 0), 1);
	gone(SOCK_STREAM, address);
}

static void close_of_a_copy_beside_accept(void)
{
	for (int original = 0; original < 2; original++) {
		Address address;
		struct caller waits, later;
		int fd = listener(SOCK_STREAM, &address), copy = (int)OK(dup(fd));
		int closed = original ? fd : copy, kept = original ? copy : fd;
		begin(&waits, accept_once, closed);
		nap(100);
		OK(close(closed));
		meet(address, &waits);
		begin(&later, accept_once, kept); /* the other number works as before */
		meet(address, &later);
		begin(&waits, accept_once, kept);
		nap(100);
		OK(close(kept));
		meet(address, &waits);
		gone(SOCK_STREAM, address);
	}
}

static void dup2_beside_accept(void)
{
	Address address;
	struct caller waits;
	int fd = listener(SOCK_STREAM, &address), other = a_socket(SOCK_RDM);
	begin(&waits, accept_once, fd);
	nap(100);
	EQ(dup2(other, fd), fd);
	ERR(accept(fd, NULL, NULL), EOPNOTSUPP);
	meet(address, &waits);
	gone(SOCK_STREAM, address);
}

static void close_beside_receive(void)
{
	static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
	struct caller waits;
	char byte;
	for (size_t i = 0; i < COUNT(types); i++) {
		struct pair ends = connected(types[i]);
		begin(&waits, receive_once, ends.client);
		nap(100);
		OK(close(ends.client));
		IS(quiet(ends.server));
		EQ(send(ends.server, "x", 1, 0), 1);
		EQ(end(&waits), 1);
		EQ(waits.byte, 'x');
		IS(recv(ends.server, &byte, 1, 0) <= 0);
	}
	Address name = service(a_type(), 1);
	int fd = bound(SOCK_RDM, name);
	begin(&waits, receive_once, fd);
	nap(100);
	OK(close(fd));
	EQ(sent_to(a_socket(SOCK_RDM), "y", 1, name), 1);
	EQ(end(&waits), 1);
	EQ(waits.byte, 'y');
	gone(SOCK_RDM, name);
}

static void close_beside_poll(void)
{
	struct caller waits;
	Address name = service(a_type(), 1);
	int fd = bound(SOCK_RDM, name), sender = a_socket(SOCK_RDM);
	begin(&waits, poll_once, fd);
	nap(100);
	OK(close(fd));
	EQ(sent_to(sender, "x", 1, name), 1);
	EQ(end(&waits), 1);
	EQ(waits.byte, POLLNVAL); /* poll looks the number up again when it wakes */
	gone(SOCK_RDM, name);
}

static void close_beside_send(void)
{
	static char data[60000];
	struct caller waits;
	struct pair ends = connected(SOCK_SEQPACKET);
	int messages = 0;
	while (send(ends.client, data, sizeof data, MSG_DONTWAIT) > 0)
		messages++;
	begin(&waits, send_once, ends.client);
	nap(100);
	OK(close(ends.client));
	while (recv(ends.server, data, sizeof data, 0) > 0)
		messages--;
	EQ(end(&waits), sizeof data);
	EQ(messages, -1); /* the last one was sent by the thread */
}

enum { NUMBERS = 10, SOURCES = 4, FIRST_NUMBER = 100 };

struct copies {
	const int *sockets; /* SOURCES of them */
	int first;	    /* of NUMBERS descriptor numbers */
	atomic_bool *over;
};

/* Copies sockets to its numbers, and closes these. */
static void *copy_and_close(void *argument)
{
	struct copies *w = argument;
	for (unsigned i = 0; !atomic_load(w->over); i++) {
		int number = w->first + (int)(i % NUMBERS);
		if (i / NUMBERS % 2)
			close(number);
		else
			dup2(w->sockets[i % SOURCES], number);
	}
	return NULL;
}

/* A fork finds each of the other threads at any step of a change. */
static void fork_beside_copies(void)
{
	int sockets[SOURCES];
	Address name = service(a_type(), 1);
	for (int i = 0; i < SOURCES; i++)
		sockets[i] = a_socket(SOCK_RDM);
	OK(bind(sockets[0], ADDR(name), sizeof name));
	atomic_bool over = false;
	pthread_t threads[3];
	struct copies works[COUNT(threads)];
	for (size_t i = 0; i < COUNT(threads); i++) {
		works[i] = (struct copies){sockets, FIRST_NUMBER + (int)i * NUMBERS, &over};
		EQ(pthread_create(&threads[i], NULL, copy_and_close, &works[i]), 0);
	}
	for (int forks = 0; forks < 60; forks++) {
		pid_t pid = (pid_t)OK(fork());
		if (pid == 0) {
			alarm(10);
			for (size_t i = 0; i < COUNT(threads) * NUMBERS; i++)
				close(FIRST_NUMBER + (int)i);
			EQ(sent_to(sockets[1], "child", 5, name), 5);
			for (int i = 0; i < SOURCES; i++)
				close(sockets[i]);
			_exit(0);
		}
		reap(pid);
		char text[8];
		EQ(recv(sockets[0], text, sizeof text, 0), 5);
	}
	atomic_store(&over, true);
	for (size_t i = 0; i < COUNT(threads); i++)
		pthread_join(threads[i], NULL);
}

const struct test_case thread_cases[] = {
	{"thread/close-beside-accept", "close(2)", close_beside_accept, false},
	{"thread/close-of-a-copy-beside-accept", "close(2)", close_of_a_copy_beside_accept, false},
	{"thread/dup2-beside-accept", "close(2)", dup2_beside_accept, false},
	{"thread/close-beside-receive", "close(2)", close_beside_receive, false},
	{"thread/close-beside-poll", "close(2)", close_beside_poll, false},
	{"thread/close-beside-send", "close(2)", close_beside_send, false},
	{"thread/asleep-beside-a-thread-that-polls", "threads", asleep_beside_a_thread_that_polls, false},
	{"thread/many-senders", "threads", many_senders, false},
	{"thread/many-receivers", "threads", many_receivers, false},
	{"thread/both-ways-at-once", "threads", both_ways_at_once, false},
	{"thread/many-accept", "threads", many_accept, false},
	{"thread/open-and-close-at-once", "threads", open_and_close_at_once, false},
	{"thread/fork-beside-copies", "fork(2)", fork_beside_copies, false},
	{NULL, NULL, NULL, false},
};

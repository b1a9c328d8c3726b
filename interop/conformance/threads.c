/* Threads that share sockets. */
#include "check.h"

#include <pthread.h>

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

const struct test_case thread_cases[] = {
	{"thread/many-senders", "threads", many_senders, false},
	{"thread/many-receivers", "threads", many_receivers, false},
	{"thread/both-ways-at-once", "threads", both_ways_at_once, false},
	{"thread/many-accept", "threads", many_accept, false},
	{"thread/open-and-close-at-once", "threads", open_and_close_at_once, false},
	{NULL, NULL, NULL, false},
};

/* Test cases, checks, and helpers that most cases use. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <linux/tipc.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

/* The AF_TIPC implementation under test. Only cases for which docs/spec/sockets.md lists a difference ask for it. */
enum engine { KERNEL, UTIPC };
extern enum engine engine;

/* Kernel and utipc differ intentionally, as row `ROW` of docs/spec/sockets.md describes. */
#define DIFFERS(ROW, ON_KERNEL, ON_UTIPC) (engine == KERNEL ? (ON_KERNEL) : (ON_UTIPC))

struct test_case {
	const char *name; /* TOPIC/CASE */
	const char *rule; /* section of tipc.md, or another source of the rule */
	void (*run)(void);
	bool remote; /* needs a second node: --peer */
};

/* A failed check ends the case with `FILE:LINE: what, expected, got`. */
_Noreturn void fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
long check_ok(const char *file, int line, const char *what, long result);
void check_errno(const char *file, int line, const char *what, long result, int expected);
void check_equal(const char *file, int line, const char *what, long long got, long long expected);
void check_true(const char *file, int line, const char *what, bool holds);
void check_bytes(const char *file, int line, const void *got, const void *expected, size_t length);

#define OK(CALL) check_ok(__FILE__, __LINE__, #CALL, (long)(CALL))
#define ERR(CALL, ERRNO) check_errno(__FILE__, __LINE__, #CALL, (long)(CALL), ERRNO)
#define EQ(GOT, EXPECTED) check_equal(__FILE__, __LINE__, #GOT, (long long)(GOT), (long long)(EXPECTED))
#define IS(CONDITION) check_true(__FILE__, __LINE__, #CONDITION, CONDITION)
#define SAME(GOT, EXPECTED, LENGTH) check_bytes(__FILE__, __LINE__, GOT, EXPECTED, LENGTH)
#define COUNT(ARRAY) (sizeof(ARRAY) / sizeof((ARRAY)[0]))

/* Addresses. `a_type` returns a service type that no other case uses. */
typedef struct sockaddr_tipc Address;
#define ADDR(A) ((struct sockaddr *)&(A))
uint32_t a_type(void);
Address service(uint32_t type, uint32_t instance);
Address range(uint32_t type, uint32_t lower, uint32_t upper);
Address port(uint32_t ref, uint32_t node);
Address scoped(Address address, int scope);
Address own_address(int fd);
Address peer_address(int fd);

/* Sockets. All of these end the case on failure. */
int a_socket(int type); /* SOCK_..., with its flags */
int bound(int type, Address address);
int listener(int type, Address *address); /* bound to a new type, instance 1 */
struct pair {
	int client, server;
};
struct pair connected(int type);
struct pair connected_to(int type, int listening, Address address);
void blocking(int fd, bool yes);
void set_timeout(int fd, int option, int ms); /* SO_RCVTIMEO or SO_SNDTIMEO */
void set_option(int fd, int option, uint32_t value); /* of SOL_TIPC */
uint32_t get_option(int fd, int option);
int get_socket_option(int fd, int option); /* of SOL_SOCKET */
long sent_to(int fd, const void *data, size_t length, Address to);

/* Waiting. */
int events_of(int fd, int asked, int ms); /* result of poll() */
void arrives(int fd); /* readable within 5 s */
bool quiet(int fd); /* not readable for 150 ms */
long long now_ms(void);
void nap(int ms);

/* One message with its address and ancillary data. */
struct message {
	long length; /* or -1 with errno */
	int flags;
	Address from, member; /* the second one only of a message in a group */
	socklen_t from_length;
	bool has_error, has_returned, has_name;
	uint32_t error[2];
	size_t returned;
	uint8_t returned_data[2048];
	uint32_t name[3];
	uint8_t data[70000];
};
const struct message *receive(int fd, int flags); /* valid until the next call */

/* Data in which each position is recognizable. */
void fill(uint8_t *data, size_t length, unsigned seed);
bool filled(const uint8_t *data, size_t length, unsigned seed);

/* Processes: `child` runs `run(argument)` in a forked process, `reap` checks that it succeeded. */
pid_t child(void (*run)(int), int argument);
void reap(pid_t pid);
/* Runs this program again with an inherited descriptor; `helper_main` performs `what` there. */
pid_t helper(const char *what, int fd);
int helper_main(const char *what, int fd);

extern uint32_t peer_type; /* service type of the helper on the other node */
extern const char *lose_command, *restore_command; /* take the link to the other node down and up */
int serve(uint32_t type); /* runs that helper */
const char *ask(const char *command); /* the helper's reply */
extern int rounds; /* of the topic `pair`, which runs only if this is set */
void leave(Address to, int kind, int round); /* the helper's part of it */

extern const struct test_case socket_cases[], bind_cases[], connect_cases[], connecting_cases[], teardown_cases[], flow_cases[],
	message_cases[], receive_cases[], call_cases[], option_cases[], poll_cases[], epoll_cases[], process_cases[], thread_cases[],
	signal_cases[], topology_cases[], subscription_cases[], group_cases[], group_remote_cases[], remote_cases[], pair_cases[];
/* What runs first if there is another node; it is not counted. */
extern const struct test_case meeting;

#endif

/* The cost of giving the same bytes to many TCP connections, as p2ps does for its mounts: one send for each, sends with
 * MSG_ZEROCOPY, and all sends of a turn in one io_uring_enter. Then the same with messages of 91 bytes that differ in
 * four bytes (the stream id) for each connection: gathered and sent, as p2ps does it, or left where they are and sent
 * as a list of pieces, so that all connections share the bytes. A child process reads everything.
 *
 *   cc -O2 -o writes writes.c && ./writes [CONNECTIONS [BYTES [SECONDS]]]      100 mounts, 59000 bytes, 2 s
 *
 * Prints the CPU time of both processes per KiB that is sent, and the rate; three rounds. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOUNTS_MAX = 1024 };
static int mounts = 100, ends[MOUNTS_MAX];
static size_t size = 59000;
static char *bytes;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static double seconds_of(const struct rusage *used)
{
    return used->ru_utime.tv_sec + used->ru_stime.tv_sec + (used->ru_utime.tv_usec + used->ru_stime.tv_usec) * 1e-6;
}

/* Waits until the peer has taken enough; not counted against the way of writing, which has the same pauses. */
static void wait_writable(int fd)
{
    struct pollfd set = { fd, POLLOUT, 0 };
    if (poll(&set, 1, 10000) != 1)
        die("poll");
}

/* The rest of a write that was cut short. */
static void send_rest(int fd, size_t done, int flags)
{
    while (done < size) {
        ssize_t sent = send(fd, bytes + done, size - done, MSG_DONTWAIT | MSG_NOSIGNAL | flags);
        if (sent > 0)
            done += sent;
        else if (errno == EAGAIN)
            wait_writable(fd);
        else if (errno == ENOBUFS)
            flags = 0;
        else
            die("send");
    }
}

static void turn_send(void)
{
    for (int i = 0; i < mounts; i++)
        send_rest(ends[i], 0, 0);
}

enum { MESSAGE = 91, HEAD = 7, ID = 4 };

/* Copies the messages into one buffer with this connection's ids, then sends it. */
static void turn_gather(void)
{
    static char *gathered, *source;
    if (!gathered && (!(gathered = calloc(1, size + MESSAGE)) || !(source = calloc(1, size + MESSAGE))))
        die("calloc");
    char *shared = bytes;
    for (unsigned i = 0; i < (unsigned)mounts; i++) {
        for (size_t at = 0; at < size; at += MESSAGE) {
            memcpy(gathered + at, source + at, MESSAGE);
            memcpy(gathered + at + HEAD, &i, ID);
        }
        bytes = gathered;
        send_rest(ends[i], 0, 0);
    }
    bytes = shared;
}

/* Sends two pieces for each message: its id, and the bytes from there to the next id, which all connections share. */
static void turn_pieces(void)
{
    enum { PIECES = 1024 };
    static char *source;
    static unsigned ids[PIECES / 2];
    if (!source && !(source = calloc(1, size + PIECES / 2 * MESSAGE)))
        die("calloc");
    for (unsigned i = 0; i < (unsigned)mounts; i++) {
        for (size_t at = 0; at < size;) {
            struct iovec pieces[PIECES];
            size_t count = 0, length = 0;
            for (; count < PIECES && at < size; count += 2, at += MESSAGE, length += MESSAGE) {
                ids[count / 2] = i;
                pieces[count] = (struct iovec){ &ids[count / 2], ID };
                pieces[count + 1] = (struct iovec){ source + at + HEAD + ID, MESSAGE - ID };
            }
            struct msghdr message = { .msg_iov = pieces, .msg_iovlen = count };
            while (length > 0) {
                ssize_t sent = sendmsg(ends[i], &message, MSG_DONTWAIT | MSG_NOSIGNAL);
                if (sent < 0 && errno == EAGAIN) {
                    wait_writable(ends[i]);
                    continue;
                }
                if (sent < 0)
                    die("sendmsg");
                length -= sent;
                for (; sent > 0 && (size_t)sent >= message.msg_iov->iov_len; message.msg_iov++, message.msg_iovlen--)
                    sent -= message.msg_iov->iov_len;
                if (sent > 0) {
                    message.msg_iov->iov_base = (char *)message.msg_iov->iov_base + sent;
                    message.msg_iov->iov_len -= sent;
                }
            }
        }
    }
}

static long copied, completed;

/* Completions of MSG_ZEROCOPY: the kernel says whether it has copied nevertheless. */
static void turn_zerocopy(void)
{
    for (int i = 0; i < mounts; i++) {
        send_rest(ends[i], 0, MSG_ZEROCOPY);
        char control[128];
        struct msghdr message = { .msg_control = control, .msg_controllen = sizeof control };
        while (recvmsg(ends[i], &message, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0) {
            struct cmsghdr *head = CMSG_FIRSTHDR(&message);
            struct sock_extended_err *note = head ? (void *)CMSG_DATA(head) : NULL;
            if (note && note->ee_origin == SO_EE_ORIGIN_ZEROCOPY) {
                completed++;
                copied += note->ee_code == SO_EE_CODE_ZEROCOPY_COPIED;
            }
            message.msg_controllen = sizeof control;
        }
    }
}

static struct {
    int fd;
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
} ring;

static int open_ring(void)
{
    struct io_uring_params p = { 0 };
    ring.fd = syscall(SYS_io_uring_setup, MOUNTS_MAX, &p);
    if (ring.fd < 0)
        return -1;
    size_t sq = p.sq_off.array + p.sq_entries * sizeof(unsigned);
    size_t cq = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    char *s = mmap(0, sq, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
    char *c = mmap(0, cq, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_CQ_RING);
    ring.sqes = mmap(0, p.sq_entries * sizeof *ring.sqes, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQES);
    if (s == MAP_FAILED || c == MAP_FAILED || ring.sqes == MAP_FAILED)
        die("mmap");
    ring.sq_tail = (void *)(s + p.sq_off.tail);
    ring.sq_mask = (void *)(s + p.sq_off.ring_mask);
    ring.sq_array = (void *)(s + p.sq_off.array);
    ring.cq_head = (void *)(c + p.cq_off.head);
    ring.cq_tail = (void *)(c + p.cq_off.tail);
    ring.cq_mask = (void *)(c + p.cq_off.ring_mask);
    ring.cqes = (void *)(c + p.cq_off.cqes);
    return 0;
}

static void turn_uring(void)
{
    unsigned tail = *ring.sq_tail;
    for (int i = 0; i < mounts; i++, tail++) {
        struct io_uring_sqe *sqe = &ring.sqes[tail & *ring.sq_mask];
        *sqe = (struct io_uring_sqe){ .opcode = IORING_OP_SEND, .fd = ends[i], .addr = (unsigned long)bytes,
                                      .len = size, .msg_flags = MSG_NOSIGNAL | MSG_DONTWAIT, .user_data = i };
        ring.sq_array[tail & *ring.sq_mask] = tail & *ring.sq_mask;
    }
    __atomic_store_n(ring.sq_tail, tail, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring.fd, mounts, mounts, IORING_ENTER_GETEVENTS, 0, 0) < 0)
        die("io_uring_enter");
    unsigned head = *ring.cq_head;
    while (head != __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE)) {
        struct io_uring_cqe *cqe = &ring.cqes[head++ & *ring.cq_mask];
        size_t done = cqe->res > 0 ? cqe->res : 0;
        if (cqe->res < 0 && cqe->res != -EAGAIN)
            die("send by io_uring");
        send_rest(ends[cqe->user_data], done, 0);
    }
    __atomic_store_n(ring.cq_head, head, __ATOMIC_RELEASE);
}

/* Reads all connections until they end. */
static void read_all(int listener)
{
    static char buffer[1 << 20];
    struct pollfd set[MOUNTS_MAX];
    for (int i = 0; i < mounts; i++)
        set[i] = (struct pollfd){ accept(listener, 0, 0), POLLIN, 0 };
    for (int open = mounts; open > 0;) {
        if (poll(set, mounts, -1) < 0)
            die("poll");
        for (int i = 0; i < mounts; i++)
            if (set[i].revents && recv(set[i].fd, buffer, sizeof buffer, MSG_DONTWAIT) == 0)
                set[i].fd = -1, open--;
    }
    exit(0);
}

static void measure(const char *name, void (*turn)(void), double seconds)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof at;
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, MOUNTS_MAX) || getsockname(listener, (void *)&at, &length))
        die("listen");
    struct rusage before, after;
    getrusage(RUSAGE_CHILDREN, &before);
    fflush(stdout);
    pid_t reader = fork();
    if (reader == 0)
        read_all(listener);
    for (int i = 0; i < mounts; i++) {
        ends[i] = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(ends[i], SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on);
        if (connect(ends[i], (void *)&at, sizeof at))
            die("connect");
    }
    long turns = 0;
    double begun = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID), took;
    do {
        turn();
        turns++;
    } while ((took = now(CLOCK_MONOTONIC) - begun) < seconds);
    cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    for (int i = 0; i < mounts; i++)
        close(ends[i]);
    close(listener);
    waitpid(reader, 0, 0);
    getrusage(RUSAGE_CHILDREN, &after);
    double reading = seconds_of(&after) - seconds_of(&before), kib = (double)turns * mounts * size / 1024;
    printf("%-10s CPU per KiB: writer %6.1f ns, reader %6.1f ns; %6.0f MB/s", name, cpu * 1e9 / kib,
           reading * 1e9 / kib, kib / 1024 / took);
    if (completed)
        printf("; %ld of %ld sends copied by the kernel", copied, completed);
    printf("\n");
    copied = completed = 0;
}

int main(int count, char **words)
{
    double seconds = count > 3 ? atof(words[3]) : 2;
    mounts = count > 1 ? atoi(words[1]) : mounts;
    size = count > 2 ? strtoul(words[2], 0, 10) : size;
    if (mounts < 1 || mounts > MOUNTS_MAX || size < 1 || seconds <= 0) {
        fprintf(stderr, "writes: usage: writes [CONNECTIONS 1-%d [BYTES [SECONDS]]]\n", MOUNTS_MAX);
        return 2;
    }
    struct rlimit files = { 4096, 4096 };
    setrlimit(RLIMIT_NOFILE, &files);
    bytes = calloc(1, size);
    for (int round = 0; round < 3; round++) {
        measure("send", turn_send, seconds);
        measure("zerocopy", turn_zerocopy, seconds);
        if (open_ring() == 0) {
            measure("io_uring", turn_uring, seconds);
            close(ring.fd);
        } else {
            printf("%-10s not permitted here: %s\n", "io_uring", strerror(errno));
        }
        measure("gathered", turn_gather, seconds);
        measure("pieces", turn_pieces, seconds);
    }
    return 0;
}

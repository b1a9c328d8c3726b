/* The rules of single calls: error codes, kinds of dispatch, handles. One process, one group. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <corosync/cpg.h>

#define CHECK(what) \
	do { \
		if (!(what)) { \
			printf("%s:%d: %s\n", __FILE__, __LINE__, #what); \
			exit(1); \
		} \
	} while (0)

static const struct cpg_name group = { 5, "calls" }, other = { 5, "other" };
static int deliveries, changes, finalizes;
static char last[64];
static struct cpg_address left_one;

static void deliver(cpg_handle_t h, const struct cpg_name *name, uint32_t nodeid, uint32_t pid, void *msg, size_t len)
{
	CHECK(name->length == 5 && !memcmp(name->value, "calls", 5) && pid == (uint32_t)getpid() && nodeid);
	CHECK(len < sizeof(last));
	memcpy(last, msg, len);
	last[len] = 0;
	deliveries++;
	if (finalizes)
		CHECK(cpg_finalize(h) == CS_OK);
}

static void confchg(cpg_handle_t h, const struct cpg_name *name, const struct cpg_address *members, size_t m,
		    const struct cpg_address *left, size_t l, const struct cpg_address *joined, size_t j)
{
	(void)h, (void)name, (void)m, (void)j;
	/* Even for empty lists. */
	CHECK(members && left && joined);
	if (l)
		left_one = left[0];
	changes++;
}

static cpg_callbacks_t callbacks = { deliver, confchg };

static void *dispatcher(void *handle)
{
	return (void *)(long)cpg_dispatch(*(cpg_handle_t *)handle, CS_DISPATCH_BLOCKING);
}

static int mcast(cpg_handle_t handle, cpg_guarantee_t guarantee, const char *text)
{
	struct iovec piece = { (void *)text, strlen(text) };
	int result;
	while ((result = cpg_mcast_joined(handle, guarantee, &piece, 1)) == CS_ERR_TRY_AGAIN)
		;
	return result;
}

static int readable(int fd)
{
	struct pollfd one = { .fd = fd, .events = POLLIN };
	return poll(&one, 1, 0);
}

static void arguments(cpg_handle_t h)
{
	struct cpg_name too_long = { 129, "" }, name = group;
	struct cpg_address list[CPG_MEMBERS_MAX];
	cpg_iteration_handle_t it;
	struct iovec piece = { NULL, 1 };
	cpg_model_v1_data_t model = { .model = CPG_MODEL_V1, .flags = 2 };
	cpg_handle_t none;
	int count;

	CHECK(cpg_initialize(NULL, &callbacks) == CS_ERR_INVALID_PARAM);
	CHECK(cpg_model_initialize(&none, 7, NULL, NULL) == CS_ERR_INVALID_PARAM);
	CHECK(cpg_model_initialize(&none, CPG_MODEL_V1, (cpg_model_data_t *)&model, NULL) == CS_ERR_INVALID_PARAM);
	CHECK(cpg_join(h, &too_long) == CS_ERR_NAME_TOO_LONG && cpg_join(h, NULL) == CS_ERR_INVALID_PARAM);
	CHECK(cpg_leave(h, &too_long) == CS_ERR_NAME_TOO_LONG);
	CHECK(cpg_membership_get(h, &too_long, list, &count) == CS_ERR_NAME_TOO_LONG);
	CHECK(cpg_membership_get(h, &name, NULL, &count) == CS_ERR_INVALID_PARAM);
	CHECK(cpg_membership_get(h, &name, list, NULL) == CS_ERR_INVALID_PARAM);
	CHECK(cpg_dispatch(h, 9) == CS_ERR_INVALID_PARAM);
	CHECK(cpg_mcast_joined(h, 9, NULL, 0) == CS_ERR_INVALID_PARAM);
	CHECK(cpg_mcast_joined(h, CPG_TYPE_AGREED, NULL, 1) == CS_ERR_INVALID_PARAM);
	CHECK(cpg_iteration_initialize(h, CPG_ITERATION_ALL, &group, &it) == CS_ERR_INVALID_PARAM);
	CHECK(cpg_iteration_initialize(h, CPG_ITERATION_ONE_GROUP, NULL, &it) == CS_ERR_INVALID_PARAM);
	CHECK(cpg_iteration_initialize(h, 9, NULL, &it) == CS_ERR_INVALID_PARAM);
	CHECK(cpg_iteration_initialize(h, CPG_ITERATION_ALL, NULL, NULL) == CS_ERR_INVALID_PARAM);
	CHECK(cpg_iteration_next(77777, NULL) == CS_ERR_INVALID_PARAM);
	CHECK(cpg_iteration_finalize(77777) == CS_ERR_BAD_HANDLE);
	/* Not joined. */
	CHECK(cpg_mcast_joined(h, CPG_TYPE_AGREED, &piece, 0) == CS_ERR_NOT_EXIST);
	CHECK(cpg_leave(h, &group) == CS_ERR_NOT_EXIST);
	CHECK(cpg_dispatch(h, CS_DISPATCH_ONE_NONBLOCKING) == CS_ERR_TRY_AGAIN);
	CHECK(cpg_dispatch(h, CS_DISPATCH_ALL) == CS_OK);
	CHECK(cpg_membership_get(h, &name, list, &count) == CS_OK && count == 0);
	CHECK(cpg_iteration_initialize(h, CPG_ITERATION_ALL, NULL, &it) == CS_OK);
	struct cpg_iteration_description_t item;
	CHECK(cpg_iteration_next(it, &item) == CS_ERR_NO_SECTIONS && cpg_iteration_finalize(it) == CS_OK);
}

static void bad_handles(cpg_handle_t h)
{
	struct cpg_name name = group;
	struct cpg_address list[CPG_MEMBERS_MAX];
	cpg_flow_control_state_t state;
	cpg_iteration_handle_t it;
	unsigned nodeid;
	void *context;
	uint32_t size;
	int n;

	CHECK(cpg_finalize(h) == CS_ERR_BAD_HANDLE && cpg_fd_get(h, &n) == CS_ERR_BAD_HANDLE);
	CHECK(cpg_context_get(h, &context) == CS_ERR_BAD_HANDLE && cpg_context_set(h, NULL) == CS_ERR_BAD_HANDLE);
	CHECK(cpg_dispatch(h, CS_DISPATCH_ALL) == CS_ERR_BAD_HANDLE && cpg_join(h, &group) == CS_ERR_BAD_HANDLE);
	CHECK(cpg_leave(h, &group) == CS_ERR_BAD_HANDLE && mcast(h, CPG_TYPE_AGREED, "") == CS_ERR_BAD_HANDLE);
	CHECK(cpg_membership_get(h, &name, list, &n) == CS_ERR_BAD_HANDLE);
	CHECK(cpg_local_get(h, &nodeid) == CS_ERR_BAD_HANDLE);
	CHECK(cpg_flow_control_state_get(h, &state) == CS_ERR_BAD_HANDLE);
	CHECK(cpg_max_atomic_msgsize_get(h, &size) == CS_ERR_BAD_HANDLE);
	CHECK(cpg_iteration_initialize(h, CPG_ITERATION_ALL, NULL, &it) == CS_ERR_BAD_HANDLE);
}

static void joined(cpg_handle_t h)
{
	static char big[(1 << 20) + 1];
	cpg_flow_control_state_t state;
	cpg_handle_t second;
	uint32_t size;
	void *buffer;
	int fd;

	CHECK(cpg_fd_get(h, &fd) == CS_OK && !readable(fd));
	CHECK(cpg_join(h, &group) == CS_OK && readable(fd));
	CHECK(cpg_join(h, &group) == CS_ERR_EXIST && cpg_join(h, &other) == CS_ERR_EXIST);
	CHECK(cpg_initialize(&second, NULL) == CS_OK && cpg_join(second, &group) == CS_ERR_EXIST);
	CHECK(cpg_leave(h, &other) == CS_ERR_NOT_EXIST && cpg_leave(second, &group) == CS_ERR_NOT_EXIST);
	CHECK(cpg_finalize(second) == CS_OK);
	CHECK(cpg_flow_control_state_get(h, &state) == CS_OK && state == CPG_FLOW_CONTROL_DISABLED);
	CHECK(cpg_max_atomic_msgsize_get(h, &size) == CS_OK && size == (1 << 20) - 1024);
	CHECK(cpg_dispatch(h, CS_DISPATCH_ONE) == CS_OK && changes == 1 && !readable(fd));

	CHECK(mcast(h, CPG_TYPE_FIFO, "one") == CS_OK && cpg_dispatch(h, CS_DISPATCH_ONE) == CS_OK);
	CHECK(deliveries == 1 && !strcmp(last, "one"));
	CHECK(mcast(h, CPG_TYPE_SAFE, "safe") == CS_OK && mcast(h, CPG_TYPE_UNORDERED, "") == CS_OK);
	CHECK(cpg_dispatch(h, CS_DISPATCH_ONE) == CS_OK && !strcmp(last, "safe"));
	CHECK(cpg_dispatch(h, CS_DISPATCH_ONE) == CS_OK && deliveries == 3 && !*last);
	struct iovec piece = { big, sizeof(big) }, no_data = { NULL, 1 };
	CHECK(cpg_mcast_joined(h, CPG_TYPE_AGREED, &piece, 1) == CS_ERR_INVALID_PARAM);
	CHECK(cpg_mcast_joined(h, CPG_TYPE_AGREED, &no_data, 1) == CS_ERR_INVALID_PARAM);

	CHECK(cpg_zcb_alloc(h, 10, NULL) == CS_ERR_INVALID_PARAM && cpg_zcb_alloc(h, 10, &buffer) == CS_OK);
	memcpy(buffer, "zero copy", 9);
	CHECK(cpg_zcb_mcast_joined(h, CPG_TYPE_AGREED, buffer, 9) == CS_OK && cpg_zcb_free(h, buffer) == CS_OK);
	CHECK(cpg_dispatch(h, CS_DISPATCH_ONE) == CS_OK && !strcmp(last, "zero copy"));

	/* A child has none of its parent's handles, and its exit has no effect. */
	pid_t child = fork();
	if (child == 0)
		_exit(cpg_leave(h, &group) != CS_ERR_BAD_HANDLE);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);

	CHECK(cpg_leave(h, &group) == CS_OK && cpg_leave(h, &group) == CS_ERR_NOT_EXIST);
	CHECK(mcast(h, CPG_TYPE_AGREED, "late") == CS_ERR_NOT_EXIST);
	CHECK(cpg_dispatch(h, CS_DISPATCH_ONE) == CS_OK && changes == 2);
	CHECK(left_one.pid == (uint32_t)getpid() && left_one.reason == CPG_REASON_LEAVE);
	/* Corosync cannot do this; here a handle joins again. */
	int result;
	while ((result = cpg_join(h, &group)) == CS_ERR_TRY_AGAIN)
		;
	CHECK(result == CS_OK && cpg_dispatch(h, CS_DISPATCH_ONE) == CS_OK && changes == 3);
}

int main(void)
{
	cpg_handle_t h;
	pthread_t thread;
	void *result = &h;

	cpg_model_v1_data_t model = { CPG_MODEL_V1, deliver, confchg, NULL, 0 };
	CHECK(cpg_model_initialize(&h, CPG_MODEL_V1, (cpg_model_data_t *)&model, &thread) == CS_OK);
	CHECK(cpg_context_get(h, &result) == CS_OK && result == &thread);
	CHECK(cpg_context_set(h, &h) == CS_OK && cpg_context_get(h, &result) == CS_OK && result == &h);
	arguments(h);
	bad_handles(h + 1000);
	joined(h);

	/* A handle that another thread finalizes ends its dispatch. */
	CHECK(pthread_create(&thread, NULL, dispatcher, &h) == 0);
	usleep(50000);
	CHECK(cpg_finalize(h) == CS_OK && pthread_join(thread, &result) == 0 && (long)result == CS_OK);
	bad_handles(h);

	/* A handle that a callback finalizes is bad for its dispatch. */
	CHECK(cpg_initialize(&h, &callbacks) == CS_OK);
	int joined;
	while ((joined = cpg_join(h, &group)) == CS_ERR_TRY_AGAIN)
		;
	CHECK(joined == CS_OK);
	finalizes = 1;
	CHECK(mcast(h, CPG_TYPE_AGREED, "end") == CS_OK);
	int before = deliveries;
	CHECK(cpg_dispatch(h, CS_DISPATCH_BLOCKING) == CS_ERR_BAD_HANDLE && deliveries == before + 1);
	printf("ok\n");
	return 0;
}

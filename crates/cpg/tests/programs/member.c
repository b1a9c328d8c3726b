/* A process of a group, driven by lines on standard input; prints what happens, one line each. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <corosync/cpg.h>

static cpg_handle_t handle;
static struct cpg_name group;

static void name_is(struct cpg_name *name, const char *text)
{
	memset(name, 0, sizeof(*name));
	name->length = strlen(text);
	memcpy(name->value, text, name->length);
}

static void print_list(const char *what, const struct cpg_address *list, size_t count)
{
	printf(" %s", what);
	for (size_t i = 0; i < count; i++) {
		printf("%c%u/%u", i ? ',' : ' ', list[i].nodeid, list[i].pid);
		if (list[i].reason)
			printf(":%u", list[i].reason);
	}
	if (count == 0)
		printf(" -");
}

static void deliver(cpg_handle_t h, const struct cpg_name *name, uint32_t nodeid, uint32_t pid, void *msg, size_t len)
{
	unsigned sum = 0;
	for (size_t i = 0; i < len; i++)
		sum = sum * 31 + ((unsigned char *)msg)[i];
	printf("message %.*s %u/%u %zu %u %.24s\n", (int)name->length, name->value, nodeid, pid, len, sum,
	       (char *)msg);
	if (h != handle)
		printf("wrong handle\n");
}

static void confchg(cpg_handle_t h, const struct cpg_name *name, const struct cpg_address *members, size_t m,
		    const struct cpg_address *left, size_t l, const struct cpg_address *joined, size_t j)
{
	(void)h;
	printf("change %.*s", (int)name->length, name->value);
	print_list("members", members, m);
	print_list("left", left, l);
	print_list("joined", joined, j);
	printf("\n");
}

static void totem(cpg_handle_t h, struct cpg_ring_id ring, uint32_t count, const uint32_t *nodes)
{
	(void)h;
	printf("ring %u nodes", ring.nodeid);
	for (uint32_t i = 0; i < count; i++)
		printf(" %u", nodes[i]);
	printf("\n");
}

static int sends(char *data, size_t len)
{
	struct iovec pieces[2] = { { data, len / 2 }, { data + len / 2, len - len / 2 } };
	return cpg_mcast_joined(handle, CPG_TYPE_AGREED, pieces, 2);
}

/* Sends until the message is accepted, dispatching in between as Corosync programs do. */
static void send_one(char *data, size_t len)
{
	int result;
	while ((result = sends(data, len)) == CS_ERR_TRY_AGAIN)
		cpg_dispatch(handle, CS_DISPATCH_ALL);
	if (result != CS_OK)
		printf("result %d\n", result);
}

static void iterate(int type, struct cpg_name *of)
{
	cpg_iteration_handle_t iteration;
	struct cpg_iteration_description_t item;
	int result = cpg_iteration_initialize(handle, type, of, &iteration);
	while (result == CS_OK && (result = cpg_iteration_next(iteration, &item)) == CS_OK)
		printf("item %.*s %u/%u\n", (int)item.group.length, item.group.value, item.nodeid, item.pid);
	printf("result %d %d\n", result, cpg_iteration_finalize(iteration));
}

static void command(char *word, char *rest)
{
	static char data[2 << 20];
	struct cpg_name name;
	struct cpg_address list[CPG_MEMBERS_MAX];
	int count = 0, result;

	if (!strcmp(word, "join")) {
		name_is(&group, rest);
		printf("result %d\n", cpg_join(handle, &group));
	} else if (!strcmp(word, "leave")) {
		printf("result %d\n", cpg_leave(handle, &group));
	} else if (!strcmp(word, "send")) {
		send_one(rest, strlen(rest));
	} else if (!strcmp(word, "long")) {
		size_t len = strtoul(rest, NULL, 10);
		for (size_t i = 0; i < len; i++)
			data[i] = 'a' + i % 26;
		send_one(data, len);
	} else if (!strcmp(word, "many")) {
		for (int i = 0, n = atoi(rest); i < n; i++) {
			snprintf(data, sizeof(data), "%d", i);
			send_one(data, strlen(data));
		}
	} else if (!strcmp(word, "fill")) {
		/* Without dispatching: how many messages fit before flow control? */
		for (count = 0; count < 1000000 && (result = sends(data, 50000)) == CS_OK; count++)
			;
		printf("filled %d %d\n", count > 0, result);
	} else if (!strcmp(word, "hold")) {
		usleep(atoi(rest) * 1000);
		printf("held\n");
	} else if (!strcmp(word, "members")) {
		name_is(&name, rest);
		result = cpg_membership_get(handle, &name, list, &count);
		printf("result %d", result);
		print_list("members", list, count);
		printf("\n");
	} else if (!strcmp(word, "names")) {
		iterate(CPG_ITERATION_NAME_ONLY, NULL);
	} else if (!strcmp(word, "all")) {
		iterate(CPG_ITERATION_ALL, NULL);
	} else if (!strcmp(word, "one")) {
		name_is(&name, rest);
		iterate(CPG_ITERATION_ONE_GROUP, &name);
	} else if (!strcmp(word, "finalize")) {
		printf("result %d\n", cpg_finalize(handle));
		printf("after %d\n", cpg_dispatch(handle, CS_DISPATCH_ALL));
	} else {
		printf("unknown command %s\n", word);
	}
}

int main(void)
{
	cpg_model_v1_data_t model = { CPG_MODEL_V1, deliver, confchg, totem,
				      CPG_MODEL_V1_DELIVER_INITIAL_TOTEM_CONF };
	static char line[4096];
	unsigned nodeid;
	int fd;

	setvbuf(stdout, NULL, _IOLBF, 0);
	setvbuf(stdin, NULL, _IONBF, 0);
	if (cpg_model_initialize(&handle, CPG_MODEL_V1, (cpg_model_data_t *)&model, NULL) != CS_OK ||
	    cpg_fd_get(handle, &fd) != CS_OK || cpg_local_get(handle, &nodeid) != CS_OK) {
		printf("no cpg\n");
		return 1;
	}
	printf("self %u/%u\n", nodeid, (unsigned)getpid());
	for (;;) {
		struct pollfd fds[2] = { { .fd = 0, .events = POLLIN }, { .fd = fd, .events = POLLIN } };
		poll(fds, 2, -1);
		if (fds[1].revents) {
			int result = cpg_dispatch(handle, CS_DISPATCH_ALL);
			if (result != CS_OK) {
				printf("dispatch %d\n", result);
				if (result == CS_ERR_BAD_HANDLE)
					fd = -1;
				else
					return 3;
			}
		}
		if (fds[0].revents) {
			if (!fgets(line, sizeof(line), stdin))
				return 0;
			line[strcspn(line, "\n")] = 0;
			char *rest = strchr(line, ' ');
			if (rest)
				*rest++ = 0;
			command(line, rest ? rest : "");
		}
	}
}

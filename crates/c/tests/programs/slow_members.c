/* Groups with policies for slow members, what a send waits for, and to whom a message was sent. */
#include "check.h"

static uint32_t group = 4400;
static char long_message[60000];

static int join_quietly(uint32_t instance)
{
	struct tipc_addr own = { .type = group, .instance = instance };
	int sd = open_socket(SOCK_RDM);

	CHECK(utipc_join(sd, &own, false, false, NULL) == 0);
	return sd;
}

static int join(uint32_t instance, const struct utipc_group_policy *policy)
{
	struct tipc_addr own = { .type = group, .instance = instance };
	int sd = open_socket(SOCK_RDM);

	CHECK(utipc_join(sd, &own, true, false, policy) == 0);
	return sd;
}

/* Receives one message or event of the member `instance`; returns its socket. */
static struct tipc_addr receive(int sd, uint32_t instance, uint32_t kind, uint32_t after_loss, const char *text)
{
	struct tipc_addr from, who;
	struct utipc_group_info info = { 77, 77 };
	int length = utipc_recvgroup(sd, long_message, sizeof(long_message), &from, &who, &info);

	CHECK(length >= 0);
	CHECK(info.kind == kind && info.after_loss == after_loss);
	CHECK(who.type == group && who.instance == instance && from.type == 0);
	CHECK(kind >= UTIPC_MEMBER_JOINED ? length == 0 : strncmp(long_message, text, strlen(text)) == 0);
	return from;
}

static void told_to_whom_a_message_was_sent(void)
{
	struct tipc_addr to = { .type = group, .instance = 2 }, second_id;
	int sender = join(1, NULL), first = join_quietly(2), second;

	receive(sender, 2, UTIPC_MEMBER_JOINED, 0, "");
	second = join_quietly(2);
	second_id = receive(sender, 2, UTIPC_MEMBER_JOINED, 0, "");
	CHECK(tipc_send(sender, "all", 3) == 3);
	CHECK(tipc_mcast(sender, "twos", 4, &to) == 4);
	CHECK(tipc_sendto(sender, "one", 3, &second_id) == 3);
	receive(second, 1, UTIPC_SENT_TO_ALL, 0, "all");
	receive(second, 1, UTIPC_SENT_TO_INSTANCE, 0, "twos");
	receive(second, 1, UTIPC_SENT_TO_MEMBER, 0, "one");
	CHECK(tipc_close(second) == 0);
	receive(sender, 2, UTIPC_MEMBER_LEFT, 0, "");
	tipc_close(first);
	tipc_close(sender);
}

static void a_send_waits_for_a_member(void)
{
	int sender = join(1, NULL), slow = join(2, NULL);
	struct tipc_addr id = receive(sender, 2, UTIPC_MEMBER_JOINED, 0, ""), waits = { 7, 7, { 7 }, 7 };
	char text[200];

	CHECK(utipc_wait_reason(sender, text, sizeof(text), &waits) == 0);
	CHECK(waits.instance == 0 && text[0] == 0);
	CHECK(tipc_sock_non_block(sender) == sender);
	for (int i = 0; i < 30; i++)
		if (tipc_sendto(sender, long_message, sizeof(long_message), &id) < 0)
			break;
	CHECK(errno == EAGAIN);
	CHECK(utipc_wait_reason(sender, text, sizeof(text), &waits) == 1);
	CHECK(waits.type == 0 && waits.instance == id.instance && waits.node == id.node);
	CHECK(strstr(text, "of the group to read") != NULL);
	CHECK(utipc_wait_reason(sender, NULL, 0, NULL) == 1);
	CHECK(utipc_wait_reason(sender, text, 8, NULL) == 1 && strlen(text) == 7);
	tipc_close(slow);
	tipc_close(sender);
}

static void slow_members_get_no_or_the_newest_messages(void)
{
	struct utipc_group_policy drop = { .slow = UTIPC_SLOW_DROP }, conflate = { .slow = UTIPC_SLOW_CONFLATE };
	int sender = join(1, &drop), slow = join(2, &drop);
	struct tipc_addr id = receive(sender, 2, UTIPC_MEMBER_JOINED, 0, "");
	uint64_t dropped = 7, conflated = 7;
	uint32_t kept = 7;

	for (int i = 0; i < 40; i++)
		CHECK(tipc_sendto(sender, long_message, sizeof(long_message), &id) == sizeof(long_message));
	CHECK(utipc_slow_member(sender, &id, &dropped, &conflated, &kept) == 0);
	CHECK(dropped > 20 && conflated == 0 && kept == 0);
	CHECK(utipc_slow_member(sender, &id, NULL, NULL, NULL) == 0);
	id.instance++;
	FAILS(utipc_slow_member(sender, &id, &dropped, &conflated, &kept), EHOSTUNREACH);
	FAILS(utipc_slow_member(sender, NULL, &dropped, &conflated, &kept), EFAULT);
	tipc_close(slow);
	tipc_close(sender);

	group++;
	sender = join(1, &conflate);
	slow = join(2, &drop);
	id = receive(sender, 2, UTIPC_MEMBER_JOINED, 0, "");
	receive(slow, 1, UTIPC_MEMBER_JOINED, 0, "");
	for (int i = 0; i < 40; i++) {
		struct tipc_addr to = { .type = group, .instance = 2 };

		sprintf(long_message, "%d", i);
		if (i % 2)
			CHECK(utipc_send_keyed(sender, long_message, sizeof(long_message), &id, 1) > 0);
		else
			CHECK(utipc_mcast_keyed(sender, long_message, sizeof(long_message), &to, 2) > 0);
	}
	CHECK(utipc_slow_member(sender, &id, &dropped, &conflated, &kept) == 0);
	CHECK(dropped == 0 && conflated > 20 && kept == 2);
	for (int left = 40 - (int)conflated; left > 2; left--)
		CHECK(tipc_recv(slow, long_message, sizeof(long_message), false) == sizeof(long_message));
	receive(slow, 1, UTIPC_SENT_TO_MEMBER, 1, "38");
	receive(slow, 1, UTIPC_SENT_TO_MEMBER, 0, "39");
	tipc_close(slow);
	tipc_close(sender);
}

static void a_slow_member_is_evicted(void)
{
	struct utipc_group_policy evict = { .slow = UTIPC_SLOW_EVICT, .evict_after_ms = 200 };
	int sender = join(1, &evict), slow = join(2, &evict);
	struct tipc_addr id = receive(sender, 2, UTIPC_MEMBER_JOINED, 0, ""), own;

	for (int i = 0; i < 30; i++)
		if (tipc_sendto(sender, long_message, sizeof(long_message), &id) < 0)
			break;
	CHECK(errno == EHOSTUNREACH);
	receive(sender, 2, UTIPC_MEMBER_EVICTED, 0, "");
	FAILS(tipc_send(slow, "x", 1), ECONNABORTED);
	CHECK(tipc_sockaddr(slow, &own) == 0);
	for (;;) {
		struct utipc_group_info info;
		struct tipc_addr from;

		CHECK(utipc_recvgroup(slow, long_message, sizeof(long_message), &from, NULL, &info) >= 0);
		if (info.kind == UTIPC_MEMBER_EVICTED) {
			CHECK(from.instance == own.instance);
			break;
		}
		CHECK(info.kind == UTIPC_SENT_TO_MEMBER || info.kind == UTIPC_MEMBER_JOINED);
	}
	CHECK(tipc_leave(slow) == 0);
	tipc_close(slow);
	tipc_close(sender);
}

static void refusals(void)
{
	struct tipc_addr own = { .type = group, .instance = 1 };
	struct utipc_group_policy unknown = { .slow = 4 }, zero = { .slow = UTIPC_SLOW_EVICT };
	struct utipc_group_policy many = { .slow = UTIPC_SLOW_CONFLATE, .keys = 65537 };
	int sd = open_socket(SOCK_RDM);

	FAILS(utipc_join(sd, NULL, true, false, NULL), EFAULT);
	FAILS(utipc_join(sd, &own, true, false, &unknown), EINVAL);
	FAILS(utipc_join(sd, &own, true, false, &zero), EINVAL);
	FAILS(utipc_join(sd, &own, true, false, &many), EINVAL);
	FAILS(utipc_mcast_keyed(sd, "x", 1, NULL, 1), EFAULT);
	tipc_close(sd);
}

int main(void)
{
	told_to_whom_a_message_was_sent();
	group++;
	a_send_waits_for_a_member();
	group++;
	slow_members_get_no_or_the_newest_messages();
	group++;
	a_slow_member_is_evicted();
	refusals();
	puts("ok");
	return 0;
}

/* Runs each case in a separate process; prints one line for each and a summary. Exit code 1 if any failed. */
#include "check.h"

#include <getopt.h>
#include <signal.h>
#include <sys/wait.h>

enum engine engine = KERNEL;
uint32_t peer_type;
const char *lose_command, *restore_command;

static const struct test_case *const topics[] = {
	socket_cases, bind_cases, connect_cases, connecting_cases, teardown_cases, flow_cases, message_cases, receive_cases, call_cases,
	option_cases, poll_cases, epoll_cases, process_cases, thread_cases, signal_cases, topology_cases, subscription_cases, group_cases,
	group_remote_cases, remote_cases, pair_cases,
};

static const char usage[] =
	"usage: conformance --engine kernel|utipc [-t SECONDS] [-x NAME]... [--peer TYPE [--lose COMMAND --restore COMMAND] [--rounds N]] [NAME...]\n"
	"       conformance -l             lists the cases and their rules\n"
	"       conformance --serve TYPE   runs the helper of the other node at this service type\n"
	"NAME is a case or a topic; -x excludes one. Cases that need another node run only with --peer, topic pair with --rounds too.\n";

static bool names(const char *name, const char *pattern)
{
	size_t length = strlen(pattern);
	return strncmp(name, pattern, length) == 0 && (name[length] == 0 || name[length] == '/');
}

static bool listed(const char *name, char *const *patterns, int count)
{
	for (int i = 0; i < count; i++)
		if (names(name, patterns[i]))
			return true;
	return false;
}

/* Time after which a case is reported as slow. */
enum { SLOW_MS = 5000 };

/* Runs one case; returns whether it passed. Its failure report comes through a pipe, so a hang affects only that
 * case. */
static bool run(const struct test_case *test, int seconds)
{
	int said[2];
	if (pipe(said) != 0) {
		perror("pipe");
		exit(2);
	}
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		setpgid(0, 0);
		dup2(said[1], STDOUT_FILENO);
		close(said[0]);
		close(said[1]);
		signal(SIGPIPE, SIG_DFL);
		test->run();
		fflush(stdout);
		_exit(0);
	}
	setpgid(pid, pid);
	close(said[1]);
	char text[4096];
	size_t length = 0;
	long long began = now_ms(), end = began + seconds * 1000LL;
	bool late = false;
	while (length < sizeof text - 1) {
		struct pollfd wait = {.fd = said[0], .events = POLLIN};
		long long left = end - now_ms();
		late = left <= 0 || poll(&wait, 1, (int)left) == 0;
		if (late)
			break;
		ssize_t n = read(said[0], text + length, sizeof text - 1 - length);
		if (n <= 0)
			break;
		length += (size_t)n;
	}
	close(said[0]);
	/* Kill the processes of the case as well; an empty group is not an error. */
	if (late)
		kill(-pid, SIGKILL);
	int status = 0;
	waitpid(pid, &status, 0);
	kill(-pid, SIGKILL);
	text[length] = 0;
	bool passed = !late && status == 0 && length == 0;
	if (passed) {
		printf("ok %s\n", test->name);
	} else if (late) {
		printf("FAILED %s: did not end within %d s%s%s\n", test->name, seconds, length ? "; " : "", length ? text : "");
	} else if (length == 0) {
		printf("FAILED %s: ended by %s %d\n", test->name, WIFSIGNALED(status) ? "signal" : "exit code",
		       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	} else {
		printf("FAILED %s: %s%s", test->name, text, text[length - 1] == '\n' ? "" : "\n");
	}
	/* A form that `cargo xtask test` reads. */
	if (now_ms() - began >= SLOW_MS)
		printf("slow: %.1f s conformance %s\n", (double)(now_ms() - began) / 1000, test->name);
	fflush(stdout);
	return passed;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"engine", required_argument, NULL, 'e'}, {"peer", required_argument, NULL, 'p'},
		{"serve", required_argument, NULL, 's'},  {"lose", required_argument, NULL, 'L'},
		{"restore", required_argument, NULL, 'R'}, {"helper", required_argument, NULL, 'H'},
		{"rounds", required_argument, NULL, 'N'},
		{NULL, 0, NULL, 0},
	};
	bool list = false, told = false;
	int seconds = 30, excluded = 0, option;
	char *without[64];
	while ((option = getopt_long(argc, argv, "lt:x:", options, NULL)) != -1) {
		switch (option) {
		case 'l':
			list = true;
			break;
		case 't':
			seconds = atoi(optarg);
			break;
		case 'x':
			if (excluded < (int)COUNT(without))
				without[excluded++] = optarg;
			break;
		case 'e':
			told = strcmp(optarg, "kernel") == 0 || strcmp(optarg, "utipc") == 0;
			engine = strcmp(optarg, "utipc") == 0 ? UTIPC : KERNEL;
			break;
		case 'p':
			peer_type = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'L':
			lose_command = optarg;
			break;
		case 'R':
			restore_command = optarg;
			break;
		case 's':
			return serve((uint32_t)strtoul(optarg, NULL, 0));
		case 'N':
			rounds = atoi(optarg);
			break;
		case 'H':
			return optind < argc ? helper_main(optarg, atoi(argv[optind])) : 2;
		default:
			fputs(usage, stderr);
			return 2;
		}
	}
	if (!list && !told) {
		fputs(usage, stderr);
		return 2;
	}
	if (!list && peer_type && !run(&meeting, seconds))
		return 1;
	int passed = 0, failed = 0;
	for (size_t i = 0; i < COUNT(topics); i++) {
		for (const struct test_case *test = topics[i]; test->name; test++) {
			bool chosen = optind == argc || listed(test->name, argv + optind, argc - optind);
			if (!chosen)
				continue;
			if (listed(test->name, without, excluded)) {
				if (!list)
					printf("skipped: %s: excluded by -x\n", test->name);
				continue;
			}
			if (list)
				printf("%-44s %s%s\n", test->name, test->rule, test->remote ? " (two nodes)" : "");
			else if ((test->remote && !peer_type) || (names(test->name, "pair") && rounds <= 0))
				continue;
			else if (run(test, seconds))
				passed++;
			else
				failed++;
		}
	}
	if (list)
		return 0;
	printf("conformance: %d passed, %d failed\n", passed, failed);
	return failed == 0 && passed > 0 ? 0 : 1;
}

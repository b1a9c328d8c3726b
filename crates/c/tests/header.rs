//! The header declares exactly what the library exports, and programs of both generations of `tipcc.h` compile with it.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use common::{folder, pkg_config, prefix, run};

/// Functions that the header declares: one of the library's names before a parenthesis, and a semicolon at the end.
fn declared(header: &str) -> BTreeSet<String> {
    let code: String =
        header.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect();
    let statements = code.split(';').filter(|statement| !statement.contains("static inline"));
    let names = statements.filter_map(|statement| {
        let name = statement.rsplit_once(')')?.0.split_once('(')?.0.rsplit([' ', '*', '\n']).next()?;
        let ours = name.starts_with("tipc_") || name.starts_with("utipc_");
        ours.then(|| name.to_owned())
    });
    names.collect()
}

#[test]
fn header_declares_exactly_the_exported_functions() {
    let header = fs::read_to_string(prefix().join("include/utipc.h")).unwrap();
    let table = run(Command::new("nm").args(["-D", "--defined-only"]).arg(prefix().join("lib/libutipc.so")));
    let exported: BTreeSet<String> =
        table.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect();
    assert!(exported.len() > 40, "{table}");
    assert_eq!(declared(&header), exported);
}

#[test]
fn declared_finds_all_functions_of_the_library() {
    let names = declared(
        "/* int tipc_no(int); */\nint tipc_a(int (*b)(int));\nchar *utipc_b(void);\nint other(int);",
    );
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["tipc_a", "utipc_b"]);
}

fn compiles(program: &str, compiler: &str, options: &[&str]) {
    let folder = folder();
    let source = folder.join(if compiler == "c++" { "program.cc" } else { "program.c" });
    fs::write(&source, program).unwrap();
    let mut command = Command::new(compiler);
    command
        .args(options)
        .args(["-Wall", "-Wextra", "-Werror"])
        .arg(&source)
        .arg("-o")
        .arg(folder.join("program"));
    run(command.args(pkg_config(&["--cflags", "--libs"])));
}

#[test]
fn headers_compile_in_every_dialect() {
    let program = "#include <utipc.h>\n#include <tipcc.h>\nint main(void) { return tipc_close(-1) + 1; }\n";
    for dialect in ["-std=c99", "-std=c11", "-std=gnu17"] {
        compiles(program, "cc", &[dialect, "-pedantic"]);
    }
    if Command::new("c++").arg("--version").output().is_ok() {
        compiles(program, "c++", &["-std=c++17"]);
    }
}

/// A program for the newer `tipcc.h`: nodes and scopes.
const NEWER: &str = r#"
#include <stdio.h>
#include "tipcc.h"

int main(void)
{
	struct tipc_addr srv = {18888, 17, 0, TIPC_CLUSTER_SCOPE}, cli, member;
	char buf[40], text[40];
	bool up, expired;
	uint32_t node;
	int err, local, remote;
	int sd = tipc_socket(SOCK_RDM);

	tipc_bind(sd, srv.type, srv.instance, srv.instance, tipc_own_node());
	tipc_sock_importance(sd, TIPC_HIGH_IMPORTANCE);
	tipc_recvfrom(sd, buf, sizeof(buf), &cli, &member, &err);
	tipc_mcast(sd, buf, 4, &srv);
	tipc_join(sd, &srv, true, false);
	tipc_leave(sd);
	tipc_srv_evt(tipc_topsrv_conn(0), &srv, &cli, &up, &expired);
	tipc_link_evt(tipc_link_subscr(cli.node), &node, &up, &local, &remote);
	printf("%s %s %s\n", tipc_ntoa(&cli, text, sizeof(text)), tipc_linkname(buf, sizeof(buf), node, local),
	       tipc_rtoa(1, 2, 3, cli.node, text, sizeof(text)));
	return tipc_srv_wait(&srv, 1000) ? tipc_close(sd) : 1;
}
"#;

/// A program for the older `tipcc.h`: domains, character buffers, events without a socket.
const OLDER: &str = r#"
#include <stdio.h>
#include "tipcc.h"

int main(void)
{
	struct tipc_addr cli, srv = {18888, 17, 0};
	tipc_domain_t neighbour, domain = tipc_domain(1, 1, 10);
	char buf[40];
	bool up;
	int err, sd = tipc_socket(SOCK_SEQPACKET);

	tipc_bind(sd, 18888, 17, 17, tipc_own_cluster());
	tipc_recvfrom(sd, buf, sizeof(buf), &cli, &srv, &err);
	srv.domain = cli.domain;
	tipc_srv_evt(sd, &srv, &up, 0);
	tipc_neigh_evt(tipc_neigh_subscr(tipc_own_zone()), &neighbour, &up);
	tipc_sockid(sd, &cli);
	printf("%u.%u.%u %s\n", tipc_zone(domain), tipc_cluster(domain), tipc_node(domain),
	       tipc_dtoa(domain, buf, sizeof(buf)));
	return tipc_sock_non_block(sd) == sd ? 0 : 1;
}
"#;

#[test]
fn programs_of_both_generations_compile_unchanged() {
    // The programs initialize addresses with three words, which the compiler's extra warnings report.
    let options = ["-std=gnu11", "-Wno-missing-field-initializers", "-Wno-missing-braces"];
    compiles(NEWER, "cc", &options);
    compiles(OLDER, "cc", &options);
}

//! The installed library as a user finds it: programs built with pkg-config run in a root directory that has only them,
//! the library and the system's C library; linked with the archive they do not even need the library.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Engine, Place, compile, folder, pkg_config, prefix, root, run};

fn example(name: &str) -> std::path::PathBuf {
    root().join("examples/c").join(name).with_extension("c")
}

/// Copies the libraries that the dynamic linker loads for a program.
fn copy_libraries(program: &Path, to: &Path) {
    let listed = run(Command::new("ldd").arg(program));
    let mut copied = 0;
    for path in listed.split_whitespace().filter(|word| word.starts_with('/')) {
        let place = to.join(path.trim_start_matches('/'));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(path, &place).unwrap();
        copied += 1;
    }
    assert!(copied >= 3, "{listed}");
}

/// Runs a program in an empty root directory, by chroot in a user namespace; `None` if the system forbids that.
fn in_empty_root(program: &Path) -> Option<String> {
    let possible = Command::new("unshare").args(["--map-root-user", "--root", "/", "true"]).output();
    if !possible.is_ok_and(|out| out.status.success()) {
        eprintln!("not run in an empty root: no user namespaces (sysctl user.max_user_namespaces)");
        return None;
    }
    let clean = folder().join("root");
    let _ = fs::remove_dir_all(&clean);
    for directory in ["tmp", "dev", "run"] {
        fs::create_dir_all(clean.join(directory)).unwrap();
    }
    fs::copy(program, clean.join("program")).unwrap();
    copy_libraries(program, &clean);
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "--ipc", "--root"]).arg(&clean);
    command.arg("/program").env_clear().env("UTIPC_ENGINE", "embedded");
    Some(run(&mut command))
}

#[test]
fn pkg_config_program_runs_in_a_clean_root() {
    let program = compile(&example("multicast"));
    if let Some(printed) = in_empty_root(&program) {
        assert!(printed.ends_with("archive: sun everywhere (sent to {1000,0,99})\n"), "{printed}");
    }
}

#[test]
fn program_linked_with_the_archive_needs_no_library() {
    let program = folder().join("multicast");
    let mut command = Command::new("cc");
    command.arg("-o").arg(&program).arg(example("multicast")).args(pkg_config(&["--cflags"]));
    command.arg(prefix().join("lib/libutipc.a"));
    let others = pkg_config(&["--libs", "--static"]);
    command.args(others.iter().filter(|flag| !flag.starts_with("-L") && *flag != "-lutipc"));
    run(&mut command);
    assert!(!run(Command::new("ldd").arg(&program)).contains("utipc"));
    let place = Place::new(Engine::Embedded);
    assert!(place.start(&program, &[]).output().starts_with("station 10: rain"));
}

#[test]
fn library_has_its_version_and_soname() {
    assert_eq!(pkg_config(&["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    let about = run(Command::new("readelf").arg("-d").arg(prefix().join("lib/libutipc.so")));
    assert!(about.contains("[libutipc.so.0]") && about.contains("NODELETE"), "{about}");
    let link = fs::read_link(prefix().join("lib/libutipc.so.0")).unwrap();
    assert_eq!(link.to_str().unwrap(), concat!("libutipc.so.", env!("CARGO_PKG_VERSION")));
}

/// Packages are staged in another directory than they are installed to.
#[test]
fn destdir_prefixes_paths_but_not_file_contents() {
    let staging = folder();
    let mut command = Command::new(env!("CARGO"));
    command.args(["xtask", "install-c", "--debug", "--prefix", "/usr", "--destdir"]).arg(&staging);
    run(command.current_dir(root()));
    let pc = fs::read_to_string(staging.join("usr/lib/pkgconfig/utipc.pc")).unwrap();
    assert!(pc.starts_with("prefix=/usr\n") && !pc.contains('@'), "{pc}");
    assert!(staging.join("usr/include/tipcc.h").exists());
}

#[test]
fn programs_run_under_valgrind() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("not run: no valgrind (apt install valgrind)");
        return;
    }
    let program = compile(&example("multicast"));
    let place = Place::new(Engine::Embedded);
    let mut command = place.command("valgrind");
    command.args(["-q", "--error-exitcode=77"]).arg(program).env("UTIPC_ENGINE", "embedded");
    assert!(run(&mut command).ends_with("archive: sun everywhere (sent to {1000,0,99})\n"));
}

//! Users and groups by name, and dropping root.

use anyhow::{Context, Result, bail};
use nix::unistd::{Group, User, initgroups, setgid, setuid};
use utipc::daemon::Users;

/// The users that a list of names, numbers, `@group` and `*` stands for.
pub(crate) fn who(names: &[String]) -> Result<Users> {
    let (mut users, mut groups) = (Vec::new(), Vec::new());
    for name in names {
        if name == "*" {
            return Ok(Users::All);
        }
        match name.strip_prefix('@') {
            Some(group) => groups.push(group_number(group)?),
            None => users.push(user_number(name)?),
        }
    }
    Ok(Users::Only { users, groups })
}

fn user_number(name: &str) -> Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let user = User::from_name(name)?.with_context(|| format!("there is no user {name:?}"))?;
    Ok(user.uid.as_raw())
}

fn group_number(name: &str) -> Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let group = Group::from_name(name)?.with_context(|| format!("there is no group {name:?}"))?;
    Ok(group.gid.as_raw())
}

/// Becomes another user, irrevocably.
pub(crate) fn become_user(name: &str) -> Result<()> {
    let user = User::from_name(name)?.with_context(|| format!("there is no user {name:?} to become"))?;
    let given = || format!("cannot become user {name:?} (start as root, or leave `user` out)");
    let login = std::ffi::CString::new(name).with_context(given)?;
    initgroups(&login, user.gid).with_context(given)?;
    setgid(user.gid).with_context(given)?;
    setuid(user.uid).with_context(given)?;
    if user.uid.as_raw() != 0 && setuid(nix::unistd::Uid::from_raw(0)).is_ok() {
        bail!("the daemon could become root again: refusing to run");
    }
    Ok(())
}

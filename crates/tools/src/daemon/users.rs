//! Users and groups by name, and dropping root.

use std::os::unix::fs::{MetadataExt, lchown};
use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::unistd::{AccessFlags, Group, User, access, getegid, geteuid, initgroups, setgid, setuid};
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

/// The users as text, for people.
pub(crate) fn list(users: &Users) -> String {
    let Users::Only { users, groups } = users else {
        return "every user that may attach".to_owned();
    };
    let users = users.iter().map(|uid| match User::from_uid((*uid).into()) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    });
    let groups = groups.iter().map(|gid| match Group::from_gid((*gid).into()) {
        Ok(Some(group)) => format!("@{}", group.name),
        _ => format!("@{gid}"),
    });
    let listed: String = users.chain(groups).map(|name| format!(", {name}")).collect();
    format!("root, the daemon's own user{listed}")
}

fn user_number(name: &str) -> Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let user = User::from_name(name)?
        .with_context(|| format!("there is no user {name:?} (create it, or correct the name)"))?;
    Ok(user.uid.as_raw())
}

fn group_number(name: &str) -> Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let group = Group::from_name(name)?.with_context(|| {
        format!("there is no group {name:?} (create it with groupadd, or correct the name)")
    })?;
    Ok(group.gid.as_raw())
}

/// The group whose members may attach to a daemon that runs in it.
pub(crate) const GROUP: &str = "utipc";

/// Whether this process runs in the group [`GROUP`].
pub(crate) fn has_own_group() -> bool {
    Group::from_gid(getegid()).ok().flatten().is_some_and(|group| group.name == GROUP)
}

/// A user that the daemon becomes.
#[derive(Debug)]
pub(crate) struct Account {
    user: User,
}

impl Account {
    /// The user with this name.
    pub(crate) fn find(name: &str) -> Result<Self> {
        let user = User::from_name(name)?.with_context(|| {
            format!("there is no user {name:?} to become (create it, for example with systemd-sysusers, or correct `user`)")
        })?;
        Ok(Self { user })
    }

    /// Its number.
    pub(crate) fn uid(&self) -> u32 {
        self.user.uid.as_raw()
    }

    /// Gives it a file or directory of this process. Others stay as they are: their owner has decided.
    pub(crate) fn hand_over(&self, path: &Path) -> Result<()> {
        let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
        if found.file_type().is_symlink() || found.uid() != geteuid().as_raw() {
            return Ok(());
        }
        lchown(path, Some(self.user.uid.as_raw()), Some(self.user.gid.as_raw()))
            .with_context(|| format!("cannot give {} to user {:?}", path.display(), self.user.name))
    }

    /// Gives it the place of the socket, as far as that is the daemon's own: the files of an earlier daemon, and the
    /// directory of the system's daemons.
    pub(crate) fn hand_over_place(&self, socket: &Path) -> Result<()> {
        let mut lock = socket.as_os_str().to_owned();
        lock.push(".lock");
        self.hand_over(socket)?;
        self.hand_over(Path::new(&lock))?;
        match socket.parent() {
            Some(folder) if folder == Path::new("/run/utipc") => self.hand_over(folder),
            _ => Ok(()),
        }
    }

    /// Becomes this user, irrevocably.
    pub(crate) fn become_it(&self) -> Result<()> {
        let name = &self.user.name;
        let given = || format!("cannot become user {name:?} (start as root, or leave `user` out)");
        let login = std::ffi::CString::new(name.as_str()).with_context(given)?;
        initgroups(&login, self.user.gid).with_context(given)?;
        setgid(self.user.gid).with_context(given)?;
        setuid(self.user.uid).with_context(given)?;
        if self.uid() != 0 && setuid(nix::unistd::Uid::from_raw(0)).is_ok() {
            bail!("the daemon could become root again: refusing to run");
        }
        Ok(())
    }
}

/// Checks that this user may create the socket.
pub(crate) fn check_place(socket: &Path) -> Result<()> {
    let folder = socket.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    access(folder, AccessFlags::W_OK | AccessFlags::X_OK).with_context(|| {
        format!(
            "user {} cannot create the socket in {} (give that user the directory, or name another place with --socket)",
            geteuid(),
            folder.display()
        )
    })
}

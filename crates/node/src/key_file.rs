//! Files with keys, which only their owner may read.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thiserror::Error;
use utipc_core::crypto::{Key, KeyError, MAX_KEY};
use zeroize::Zeroizing;

/// Maximum number of bytes of a file: the longest key in hexadecimal digits, `0x` and the end of the line.
const MOST: u64 = 2 * MAX_KEY as u64 + 8;

/// Reason why a key file is not used.
#[derive(Debug, Error)]
pub enum KeyFileError {
    /// It cannot be read.
    #[error("cannot read the key file {}: {error} (name a file that this user can read)", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: std::io::Error,
    },
    /// It is not a regular file.
    #[error("the key file {} is not a regular file (write the key into a file)", .0.display())]
    NotRegular(PathBuf),
    /// It belongs to another user than the process's or root.
    #[error("the key file {} belongs to user {owner} (`chown` it to the user of this program)", path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// Others than its owner may read or write it.
    #[error("others may read or write the key file {} (`chmod 600` it)", .0.display())]
    Open(PathBuf),
    /// It contains no key.
    #[error("the key file {} has no key: {error}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The fault.
        error: KeyError,
    },
}

/// Reads a key: one line of hexadecimal digits, with or without `0x`.
///
/// # Errors
/// See [`KeyFileError`].
pub fn read(path: &Path) -> Result<Key, KeyFileError> {
    let unreadable = |error| KeyFileError::Unreadable { path: path.to_owned(), error };
    let file = File::open(path).map_err(unreadable)?;
    // The open file is examined, so that no other one can take its place in between.
    let about = file.metadata().map_err(unreadable)?;
    if !about.is_file() {
        return Err(KeyFileError::NotRegular(path.to_owned()));
    }
    if about.uid() != utipc_os::fdpass::own_user() && about.uid() != 0 {
        return Err(KeyFileError::Owner { path: path.to_owned(), owner: about.uid() });
    }
    if about.mode() & 0o077 != 0 {
        return Err(KeyFileError::Open(path.to_owned()));
    }
    let mut text = Zeroizing::new(String::with_capacity(MOST as usize + 1));
    file.take(MOST + 1).read_to_string(&mut text).map_err(unreadable)?;
    Key::from_hex(text.trim()).map_err(|error| KeyFileError::Content { path: path.to_owned(), error })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_a_file_of_the_owner_alone_is_read() {
        let folder = std::env::temp_dir().join(format!("utipc-key-file-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("key");
        let write = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            read(&path)
        };
        let hex = "00112233445566778899aabbccddeeff01020304";
        assert_eq!(write(&format!("0x{hex}\n"), 0o600).unwrap(), Key::from_hex(hex).unwrap());
        assert!(write(hex, 0o400).is_ok());
        for mode in [0o640, 0o604, 0o620, 0o601] {
            assert!(matches!(write(hex, mode), Err(KeyFileError::Open(_))), "{mode:o}");
        }
        for (text, wrong) in
            [("", KeyError::Length(0)), ("hello", KeyError::Hex), ("0011", KeyError::Length(2))]
        {
            let error = write(text, 0o600).unwrap_err();
            assert!(
                matches!(error, KeyFileError::Content { error, .. } if error == wrong),
                "{text}: {error}"
            );
        }
        assert!(matches!(write(&"00".repeat(1000), 0o600), Err(KeyFileError::Content { .. })));
        assert!(matches!(read(&folder), Err(KeyFileError::NotRegular(_))));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(matches!(read(&path), Err(KeyFileError::Unreadable { .. })));
    }
}

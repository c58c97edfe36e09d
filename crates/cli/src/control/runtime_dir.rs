//! The directory that a user's stacks have their sockets in.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::process::geteuid;

/// Names the directory, whoever asks: `forebay exec` sets it for its command, to whom its own user
/// looks like root.
pub(crate) const OVERRIDE: &str = "FOREBAY_RUNTIME_DIR";

/// The longest path of a Unix socket (`sun_path`, with its closing zero).
const MAX_SOCKET_PATH: usize = 107;

/// Whether a stack may be called this: it becomes part of a path.
pub(crate) fn is_stack_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=32).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(is_plain)
}

/// A directory that nobody but its owner, who is us, can look into.
#[derive(Debug, Clone)]
pub(crate) struct RuntimeDir {
    path: PathBuf,
}

impl RuntimeDir {
    /// Where this user's stacks are, whether or not there are any.
    pub(crate) fn path_for_this_user() -> PathBuf {
        let absolute = |name| {
            let path = std::env::var_os(name).map(PathBuf::from);
            path.filter(|path| path.is_absolute())
        };
        if let Some(path) = absolute(OVERRIDE) {
            return path;
        }
        if let Some(base) = absolute("XDG_RUNTIME_DIR").filter(|base| base.is_dir()) {
            return base.join("forebay");
        }
        match geteuid() {
            uid if uid.is_root() => PathBuf::from("/run/forebay"),
            uid => PathBuf::from(format!("/tmp/forebay-{}", uid.as_raw())),
        }
    }

    /// The directory, made if it isn't there.
    ///
    /// # Errors
    ///
    /// If it can't be made, or is not safe to use.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                let why = format!("can't make the directory {}: {error}", path.display());
                Err(io::Error::new(error.kind(), why))
            }
            _ => Self::open(path),
        }
    }

    /// The directory, if it is safe to use: `/tmp` is everybody's, so it may be somebody else's, a
    /// link to anywhere, or open to others.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if there is none; [`io::ErrorKind::PermissionDenied`].
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        let fault = if !metadata.is_dir() {
            Some("is no directory; remove it".to_owned())
        } else if metadata.uid() != geteuid().as_raw() {
            let owner = metadata.uid();
            Some(format!(
                "belongs to user {owner}; be that user, or set {OVERRIDE} to a directory of your own"
            ))
        } else if metadata.mode() & 0o077 != 0 {
            let mode = metadata.mode() & 0o7777;
            Some(format!(
                "is open to others (mode {mode:04o}); `chmod 700` it"
            ))
        } else {
            None
        };
        match fault {
            None => Ok(Self {
                path: path.to_owned(),
            }),
            Some(fault) => {
                let why = format!("{} {fault}", path.display());
                Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
            }
        }
    }

    /// Where the stack's socket is or goes.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for a name that can't be part of a path, or is too long.
    pub(crate) fn socket(&self, stack: &str) -> io::Result<PathBuf> {
        let invalid = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if !is_stack_name(stack) {
            return invalid(format!(
                "{stack:?} can't be a stack's name: 1 to 32 letters, digits, '-', '_', '.'"
            ));
        }
        let path = self.path.join(format!("{stack}.sock"));
        if path.as_os_str().len() > MAX_SOCKET_PATH {
            return invalid(format!(
                "{} is too long for a socket's path; set {OVERRIDE} to a shorter directory",
                path.display()
            ));
        }
        Ok(path)
    }

    /// Where `nstat` keeps what it has shown of a stack.
    pub(crate) fn history(&self, stack: &str) -> PathBuf {
        self.path.join(format!("{stack}.nstat"))
    }

    /// The names of all sockets, in order. Not behind each of them there is somebody.
    pub(crate) fn stacks(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let name = name.to_str().and_then(|name| name.strip_suffix(".sock"));
            names.extend(name.map(str::to_owned));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Keeps other stacks from looking for a name until the lock is dropped.
    pub(crate) fn lock(&self) -> io::Result<File> {
        let directory = File::open(&self.path)?;
        rustix::fs::flock(&directory, FlockOperation::LockExclusive)?;
        Ok(directory)
    }

    /// Keeps others from the socket, should it ever lie in a directory that is open to them.
    pub(crate) fn close_to_others(socket: &Path) -> io::Result<()> {
        fs::set_permissions(socket, fs::Permissions::from_mode(0o600))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn refusal(path: &Path) -> String {
        RuntimeDir::create(path).unwrap_err().to_string()
    }

    #[test]
    fn makes_a_directory_for_the_owner_alone() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("forebay");
        RuntimeDir::create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        RuntimeDir::create(&path).expect("it may be there already");
    }

    #[test]
    fn refuses_what_others_could_have_put_there() {
        let parent = tempfile::tempdir().unwrap();
        let open = parent.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(refusal(&open).contains("is open to others (mode 0755)"));

        let safe = parent.path().join("safe");
        RuntimeDir::create(&safe).unwrap();
        let link = parent.path().join("link");
        symlink(&safe, &link).unwrap();
        assert!(refusal(&link).contains("is no directory"));

        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(refusal(&file).contains("is no directory"));
        assert!(refusal(&parent.path().join("none/here")).contains("can't make the directory"));
    }

    #[test]
    fn names_are_parts_of_paths() {
        let parent = tempfile::tempdir().unwrap();
        let directory = RuntimeDir::create(&parent.path().join("d")).unwrap();
        for good in ["main", "a", "edge-1.lab_2"] {
            assert!(
                directory
                    .socket(good)
                    .unwrap()
                    .ends_with(format!("{good}.sock"))
            );
        }
        for bad in [
            "",
            ".",
            "..",
            ".hidden",
            "a/b",
            "../x",
            "a b",
            "ä",
            &"x".repeat(33),
        ] {
            let error = directory.socket(bad).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{bad:?}");
        }
    }
}

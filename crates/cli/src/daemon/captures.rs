//! Keeps devices from writing into each other's captures.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use toml::Spanned;

use crate::config::{Config, Kind, Problem};

/// What tells that two paths are of one file, or that one would be made at both.
#[derive(PartialEq, Eq)]
enum Identity {
    Inode(u64, u64),
    /// No file yet.
    Missing(PathBuf),
}

/// Refuses to write what is read, or written by another device: files are emptied when they are
/// opened for that.
pub(super) fn check(config: &Config) -> Result<(), Problem> {
    let captures = config
        .devices
        .iter()
        .filter_map(|device| match &device.kind {
            Kind::Pcap(pcap) => Some(pcap),
            _ => None,
        });
    let (mut read, mut written) = (Vec::new(), Vec::new());
    for pcap in captures.clone() {
        read.extend(pcap.read.as_ref().and_then(identity));
    }
    for path in captures.filter_map(|pcap| pcap.write.as_ref()) {
        let Some(identity) = identity(path) else {
            continue;
        };
        let refused = |what| Err(Problem::new(path.span(), what));
        if read.contains(&identity) {
            return refused("`write`: this file is read");
        }
        if written.contains(&identity) {
            return refused("`write`: another device writes this file");
        }
        written.push(identity);
    }
    Ok(())
}

/// `None` for what is no file that could be overwritten: a terminal or `/dev/null` may be shared.
fn identity(path: &Spanned<PathBuf>) -> Option<Identity> {
    let path = path.get_ref();
    if let Ok(file) = fs::metadata(path) {
        return file
            .is_file()
            .then(|| Identity::Inode(file.dev(), file.ino()));
    }
    let directory = match path.parent()? {
        here if here.as_os_str().is_empty() => Path::new("."),
        directory => directory,
    };
    let directory = directory.canonicalize().ok()?;
    Some(Identity::Missing(directory.join(path.file_name()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_is_written_that_another_device_uses() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        for name in ["a", "b"] {
            fs::write(path(name), "").unwrap();
        }
        fs::hard_link(path("a"), path("link")).unwrap();
        fs::create_dir(path("sub")).unwrap();
        let missing = path("sub/../new");
        let cases = [
            (("read", path("a")), ("write", path("a")), false),
            (("write", path("a")), ("read", path("link")), false),
            (("write", path("a")), ("write", path("link")), false),
            (("write", path("new")), ("write", missing), false),
            (("read", path("a")), ("read", path("link")), true),
            (("read", path("a")), ("write", path("b")), true),
            (
                ("write", "/dev/null".to_owned()),
                ("write", "/dev/null".to_owned()),
                true,
            ),
        ];
        for ((key, file), (other, other_file), is_good) in cases {
            let text = format!(
                "[[device]]\nname = \"a\"\nkind = \"pcap\"\n{key} = {file:?}\n\
                 [[device]]\nname = \"b\"\nkind = \"pcap\"\n{other} = {other_file:?}\n"
            );
            let config = Config::parse("x.toml", text.as_str()).unwrap();
            assert_eq!(check(&config).is_ok(), is_good, "{text}");
        }
    }
}

//! What was counted the last time, in a file beside the stack's socket.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags};
use serde::{Deserialize, Serialize};

/// The file, which is ours until this is dropped.
#[derive(Debug)]
pub(super) struct History {
    file: File,
    last: Option<Last>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Last {
    /// Which run of the stack counted.
    run: String,
    values: HashMap<String, u64>,
}

impl History {
    /// Opens or makes the file, and waits until no other command has it. What isn't a history
    /// counts as none.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let mut file = options.open(path)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok(Self {
            file,
            last: serde_json::from_slice(&text).ok(),
        })
    }

    /// As if there had been no last time.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    /// The values of the last time; none if that was another run of the stack.
    pub(super) fn values(&self, run: &str) -> HashMap<String, u64> {
        let last = self.last.as_ref().filter(|last| last.run == run);
        last.map(|last| last.values.clone()).unwrap_or_default()
    }

    /// Makes this the last time.
    pub(super) fn remember(&mut self, run: &str, values: HashMap<String, u64>) -> io::Result<()> {
        let last = Last {
            run: run.to_owned(),
            values,
        };
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&serde_json::to_vec(&last)?)?;
        self.last = Some(last);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_for_one_run_of_the_stack() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("main.nstat");
        let values = HashMap::from([("IpInReceives".to_owned(), 7)]);
        let mut history = History::open(&path).unwrap();
        assert!(history.values("first").is_empty());
        history.remember("first", values.clone()).unwrap();
        drop(history);
        let mut history = History::open(&path).unwrap();
        assert_eq!(history.values("first"), values);
        assert!(history.values("second").is_empty());
        history.forget();
        assert!(history.values("first").is_empty());
    }

    #[test]
    fn garbage_is_no_history() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("main.nstat");
        std::fs::write(&path, "{nonsense").unwrap();
        let mut history = History::open(&path).unwrap();
        assert!(history.values("first").is_empty());
        history.remember("first", HashMap::new()).unwrap();
        drop(history);
        assert!(std::fs::read_to_string(&path).unwrap().ends_with('}'));
    }
}

//! Running this program under valgrind, and reading what was counted.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::COUNTED;

/// Where callgrind's output is left, a file for each path.
pub(crate) const DIRECTORY: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/instructions");

/// Instructions per packet, by the path's name.
pub(crate) type Counts = BTreeMap<String, f64>;

/// Counts the instructions of every path.
pub(crate) fn count() -> Result<Counts, Box<dyn Error>> {
    let directory = Path::new(DIRECTORY);
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    fs::create_dir_all(directory)?;
    let dump = directory.join("dump");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", dump.display()))
        // Functions of `paths`. Of two patterns that begin alike, callgrind heeds one.
        .arg("--toggle-collect=*counted_work*")
        .arg("--dump-after=*end_of_path*")
        .arg(std::env::current_exe()?)
        .arg(COUNTED)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("valgrind: {error} (Debian: apt-get install valgrind)"))?;
    if !output.status.success() {
        return Err(format!("valgrind: {}", output.status).into());
    }
    let mut counts = Counts::new();
    for (number, line) in (1..).zip(String::from_utf8(output.stdout)?.lines()) {
        let (name, packets) = line.rsplit_once(' ').ok_or("a path without its packets")?;
        let file = keep(number, name)?;
        let instructions = summary(&fs::read_to_string(file)?)?;
        counts.insert(name.to_owned(), instructions / packets.parse::<f64>()?);
    }
    Ok(counts)
}

/// Names a dump after its path, for who wants to look closer.
fn keep(number: usize, name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let directory = Path::new(DIRECTORY);
    let file = directory.join(name.replace([':', ','], "").replace(' ', "-"));
    fs::rename(directory.join(format!("dump.{number}")), &file)?;
    Ok(file)
}

/// The sum over all functions.
fn summary(dump: &str) -> Result<f64, Box<dyn Error>> {
    let line = dump.lines().find_map(|line| line.strip_prefix("totals: "));
    let instructions: f64 = line.ok_or("a dump of callgrind without its sum")?.parse()?;
    if instructions == 0.0 {
        return Err("callgrind has not found the function to be counted".into());
    }
    Ok(instructions)
}

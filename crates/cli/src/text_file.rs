//! Texts that people write, read whole: what never ends (`/dev/zero`) must not take all memory.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Bytes that a text may have.
const LIMIT: u64 = 16 << 20;

/// Reads a file, which may be a pipe (`<(...)` of a shell).
///
/// # Errors
///
/// What reading says, and that the text is too long or not UTF-8.
pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<String> {
    read_from(File::open(path)?)
}

/// Reads what is open already.
///
/// # Errors
///
/// As [`read`].
pub(crate) fn read_from(source: impl Read) -> io::Result<String> {
    let invalid = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut text = Vec::new();
    source.take(LIMIT + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LIMIT {
        return Err(invalid("it is longer than 16 MiB"));
    }
    String::from_utf8(text).map_err(|_| invalid("it is no text (UTF-8)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_never_ends_is_refused() {
        let error = read("/dev/zero").unwrap_err();
        assert_eq!(error.to_string(), "it is longer than 16 MiB");
        let longest = read_from(io::repeat(b'#').take(LIMIT)).unwrap();
        assert_eq!(longest.len() as u64, LIMIT);
        let error = read_from(&[0xff][..]).unwrap_err();
        assert_eq!(error.to_string(), "it is no text (UTF-8)");
    }
}

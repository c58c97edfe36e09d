//! Names of network interfaces.

use std::fmt;
use std::str::FromStr;

/// `IFNAMSIZ`: bytes of an interface name with the NUL at its end.
const IFNAMSIZ: usize = 16;

/// The name of a network interface: 1 to 15 bytes, as `dev_valid_name()` accepts them.
///
/// It is held inline, so that it can be used between `fork` and `exec`, where nothing may
/// allocate.
///
/// ```
/// use forebay_os::name::InterfaceName;
///
/// let name: InterfaceName = "tun0".parse()?;
/// assert_eq!(name.as_str(), "tun0");
/// assert!("a-name-that-is-too-long".parse::<InterfaceName>().is_err());
/// # Ok::<(), forebay_os::name::InvalidName>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct InterfaceName {
    /// Padded with NUL bytes; the last byte always is one.
    bytes: [u8; IFNAMSIZ],
}

impl InterfaceName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        let end = self.bytes.iter().position(|&byte| byte == 0);
        let name = self.bytes.get(..end.unwrap_or(IFNAMSIZ));
        // Names come from a `&str`; the kernel replaces at most `%d` by digits.
        name.and_then(|name| str::from_utf8(name).ok())
            .unwrap_or_default()
    }

    /// The name as `struct ifreq` holds it.
    pub(crate) fn to_kernel(self) -> [u8; IFNAMSIZ] {
        self.bytes
    }

    /// A name that the kernel wrote into a `struct ifreq`.
    pub(crate) fn from_kernel(bytes: [u8; IFNAMSIZ]) -> Self {
        Self { bytes }
    }
}

impl FromStr for InterfaceName {
    type Err = InvalidName;

    fn from_str(name: &str) -> Result<Self, InvalidName> {
        let invalid = |problem| InvalidName {
            name: name.to_owned(),
            problem,
        };
        if name.is_empty() {
            return Err(invalid("it is empty"));
        }
        if name == "." || name == ".." {
            return Err(invalid("it means a directory"));
        }
        // A vertical tab is white space to the kernel, but not to Rust's `is_ascii_whitespace`.
        let refused = |byte: u8| byte.is_ascii_whitespace() || b"\0\x0b/:".contains(&byte);
        if name.bytes().any(refused) {
            return Err(invalid("it has a space, '/', ':' or NUL in it"));
        }
        let mut bytes = [0; IFNAMSIZ];
        match bytes.get_mut(..name.len()) {
            Some(start) if name.len() < IFNAMSIZ => start.copy_from_slice(name.as_bytes()),
            _ => return Err(invalid("it is longer than 15 bytes")),
        }
        Ok(Self { bytes })
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// A name that no interface can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} cannot be the name of an interface: {problem}")]
pub struct InvalidName {
    name: String,
    problem: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_kernel_takes() {
        for name in ["lo", "tun0", "tun%d", "fifteen-bytes-x", "ü"] {
            let parsed: InterfaceName = name.parse().expect(name);
            assert_eq!(parsed.as_str(), name);
            assert_eq!(parsed.to_string(), name);
            assert_eq!(InterfaceName::from_kernel(parsed.to_kernel()), parsed);
        }
    }

    #[test]
    fn names_the_kernel_refuses() {
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "a:b",
            "a b",
            "a\tb",
            "a\x0bb",
            "a\0b",
            "sixteen-bytes-xx",
            "much-longer-than-any-buffer-for-it",
        ] {
            assert!(name.parse::<InterfaceName>().is_err(), "{name:?}");
        }
    }
}

//! How long a socket's calls may wait.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// `O_NONBLOCK` and `SO_RCVTIMEO` (or `SO_SNDTIMEO`) in one word, as there may be very many sockets: nanoseconds, 0 for
/// ever, above a bit that says "not at all".
#[derive(Default)]
pub(crate) struct Patience(AtomicU64);

const NONBLOCKING: u64 = 1;

impl Patience {
    pub(crate) fn is_nonblocking(&self) -> bool {
        self.0.load(Relaxed) & NONBLOCKING != 0
    }

    pub(crate) fn set_nonblocking(&self, on: bool) {
        if on {
            self.0.fetch_or(NONBLOCKING, Relaxed);
        } else {
            self.0.fetch_and(!NONBLOCKING, Relaxed);
        }
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        let nanos = self.0.load(Relaxed) >> 1;
        (nanos != 0).then(|| Duration::from_nanos(nanos))
    }

    /// At most 292 years, and not zero.
    pub(crate) fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(no_time());
        }
        let nanos = timeout.map_or(0, |timeout| {
            u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)
        });
        let nanos = nanos.min(u64::MAX >> 1);
        let with = |word| Some(nanos << 1 | word & NONBLOCKING);
        // It fails only if `with` says so.
        let _ = self.0.fetch_update(Relaxed, Relaxed, with);
        Ok(())
    }
}

/// Zero where a time is asked for, which is not taken for "not at all", lest it be taken for "for
/// ever".
pub(crate) fn no_time() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a timeout of zero")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_set_without_the_other() {
        let patience = Patience::default();
        assert_eq!(
            (patience.is_nonblocking(), patience.timeout()),
            (false, None)
        );
        let longest = Duration::from_nanos(u64::MAX >> 1);
        for (set, told) in [
            (Some(Duration::from_nanos(1)), Some(Duration::from_nanos(1))),
            (Some(Duration::from_secs(3)), Some(Duration::from_secs(3))),
            (Some(Duration::MAX), Some(longest)),
            (None, None),
        ] {
            for on in [true, false, true] {
                patience.set_nonblocking(on);
                patience.set_timeout(set).expect("not zero");
                assert_eq!((patience.is_nonblocking(), patience.timeout()), (on, told));
                patience.set_nonblocking(!on);
                assert_eq!((patience.is_nonblocking(), patience.timeout()), (!on, told));
            }
        }
        let refused = patience.set_timeout(Some(Duration::ZERO)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}

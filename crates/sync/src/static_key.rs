//! A switch for code that is rarely wanted, after Linux's static keys.

use crate::loom::atomic::{AtomicU32, Ordering};

/// Enabled while more users have asked for it than have let go, as with
/// Linux's `static_branch_inc` and `static_branch_dec`.
///
/// Linux patches the branch into the code. Here it is a load of a line that
/// hardly ever changes, and callers read it once per batch.
///
/// ```
/// use forebay_sync::static_key::StaticKey;
///
/// static RPS_NEEDED: StaticKey = StaticKey::new();
/// assert!(!RPS_NEEDED.is_enabled());
/// RPS_NEEDED.inc();
/// assert!(RPS_NEEDED.is_enabled());
/// RPS_NEEDED.dec();
/// ```
#[derive(Debug, Default)]
pub struct StaticKey {
    users: AtomicU32,
}

impl StaticKey {
    /// A key that is off.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            users: AtomicU32::new(0),
        }
    }

    /// A key that is off; loom's atomics are not made in constants.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self {
            users: AtomicU32::new(0),
        }
    }

    /// One more user.
    pub fn inc(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// One user less. To let go more often than one has asked is a bug; the
    /// key then stays off rather than wrapping round to on.
    pub fn dec(&self) {
        let relaxed = Ordering::Relaxed;
        let before = self
            .users
            .fetch_update(relaxed, relaxed, |users| users.checked_sub(1));
        debug_assert!(
            before.is_ok(),
            "a static key was let go more often than taken"
        );
    }

    /// Whether anybody uses it. Orders nothing: what the key guards must be
    /// found by its own means.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.users.load(Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn is_on_until_the_last_user_lets_go() {
        let key = StaticKey::new();
        key.inc();
        key.inc();
        key.dec();
        assert!(key.is_enabled());
        key.dec();
        assert!(!key.is_enabled());
    }

    #[test]
    fn never_wraps_to_on() {
        let key = StaticKey::new();
        let outcome = std::panic::catch_unwind(|| key.dec());
        assert_eq!(outcome.is_err(), cfg!(debug_assertions));
        assert!(!key.is_enabled());
        key.inc();
        assert!(key.is_enabled());
    }
}

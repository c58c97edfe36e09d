//! A thread that sleeps when it has nothing to do, and others that give it work.

use crate::loom::atomic::{AtomicU32, Ordering};

const AWAKE: u32 = 0;
const CALLED: u32 = 1;
const ASLEEP: u32 = 2;

/// Tells who brings work whether the sleeper has to be woken, so that a system call is made only
/// when it is; and tells the sleeper whether work has come since it last looked around.
///
/// The sleeper [begins to look around](Self::look), looks, and if it found nothing
/// [goes to sleep](Self::sleep), unless somebody has called since. Who brings work leaves it where
/// the sleeper looks, then [calls](Self::call).
///
/// ```
/// use forebay_sync::doze::Doze;
///
/// let doze = Doze::new();
/// doze.look();
/// assert!(!doze.call(), "it is awake, and will look again");
/// assert!(!doze.sleep(), "somebody has called");
/// doze.look();
/// assert!(doze.sleep());
/// assert!(doze.call(), "it has to be woken");
/// assert!(!doze.call(), "once");
/// ```
#[derive(Debug, Default)]
pub struct Doze {
    state: AtomicU32,
}

impl Doze {
    /// A sleeper that is awake.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: AtomicU32::new(AWAKE),
        }
    }

    /// There is work. Says whether the sleeper has to be woken for it.
    ///
    /// What was written before is seen by the look-around that the call leads to.
    #[must_use = "a sleeper that is not woken sleeps on"]
    pub fn call(&self) -> bool {
        // Always written, also where a call is under way: the sleeper could be about to look, and
        // miss what we have just left.
        self.state.swap(CALLED, Ordering::AcqRel) == ASLEEP
    }

    /// The sleeper begins to look around: what was left before earlier calls will be seen.
    pub fn look(&self) {
        self.state.swap(AWAKE, Ordering::AcqRel);
    }

    /// The sleeper has found nothing. Whether it may sleep until it is woken.
    #[must_use = "somebody may have called"]
    pub fn sleep(&self) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        self.state
            .compare_exchange(AWAKE, ASLEEP, success, failure)
            .is_ok()
    }
}

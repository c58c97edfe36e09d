//! Looking again and again for a while, before sleeping: what Linux calls busy polling. It burns a
//! processor to save the time that falling asleep and waking up take.

use std::io;
use std::time::{Duration, Instant};

/// Looks until there is something, or `time` has passed.
pub(crate) fn look_for<T>(
    time: Duration,
    mut look: impl FnMut() -> io::Result<Option<T>>,
) -> io::Result<Option<T>> {
    if time.is_zero() {
        return Ok(None);
    }
    let begin = Instant::now();
    loop {
        let found = look()?;
        if found.is_some() || begin.elapsed() >= time {
            return Ok(found);
        }
        std::hint::spin_loop();
    }
}

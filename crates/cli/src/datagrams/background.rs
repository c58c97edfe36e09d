//! The other side of a measurement, in a thread of its own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Does the same again and again, until it fails or this is dropped.
pub(crate) struct Background {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Background {
    /// `step` has to come back soon, as it is waited for in the end.
    pub(crate) fn start(
        name: &str,
        mut step: impl FnMut() -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let body = move || {
            while !stopped.load(Ordering::Relaxed) {
                step()?;
            }
            Ok(())
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(body)?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Whether it has ended.
    ///
    /// # Errors
    ///
    /// Why it has; told once.
    pub(crate) fn is_over(&mut self) -> io::Result<bool> {
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            join(thread)?;
        }
        Ok(self.thread.is_none())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What failed has been measured from this side.
            let _ = join(thread);
        }
    }
}

fn join(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    let panicked = |_| Err(io::Error::other("the thread panicked"));
    thread.join().unwrap_or_else(panicked)
}

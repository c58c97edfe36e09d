//! Which worker is on which processor.

use std::io;
use std::sync::OnceLock;

use forebay_os::cpu;

/// The processors that workers are kept on, in the order of the workers: those that the thread was
/// allowed which built the first stack.
static PROCESSORS: OnceLock<Vec<usize>> = OnceLock::new();

/// Takes note of the processors, before workers are kept on some of them.
pub(crate) fn look_around() -> io::Result<()> {
    if PROCESSORS.get().is_none() {
        let allowed = cpu::allowed()?;
        // Somebody else may have been faster.
        let _ = PROCESSORS.set(allowed);
    }
    Ok(())
}

/// Keeps the calling thread where worker `number` belongs. With more workers than processors, some
/// share one.
pub(crate) fn pin_worker(number: u16) -> io::Result<()> {
    match PROCESSORS.get() {
        Some(processors) if !processors.is_empty() => {
            cpu::pin(processors[usize::from(number) % processors.len()])
        }
        _ => Ok(()),
    }
}

/// The worker on whose processor the calling thread runs, whether or not there is one.
pub(crate) fn current_worker() -> Option<u16> {
    let cpu = cpu::current();
    let position = PROCESSORS.get()?.iter().position(|known| *known == cpu)?;
    u16::try_from(position).ok()
}

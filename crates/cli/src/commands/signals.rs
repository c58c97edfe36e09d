//! Signals as messages.

use std::io;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

/// The signals that ask a daemon to end.
pub(crate) fn ends() -> io::Result<Receiver<i32>> {
    receive(&[SIGINT, SIGTERM, SIGHUP])
}

/// The signals that a command should get which runs under this process's name.
pub(crate) fn to_hand_on() -> io::Result<Receiver<i32>> {
    receive(&[SIGINT, SIGTERM, SIGHUP, SIGQUIT])
}

fn receive(signals: &[i32]) -> io::Result<Receiver<i32>> {
    let (sender, receiver) = mpsc::channel();
    hand_on(signals, move |signal| sender.send(signal).is_ok())?;
    Ok(receiver)
}

/// Hands signals to `receiver`, in a thread of their own, until that says that it wants no more.
pub(crate) fn hand_on(
    signals: &[i32],
    receiver: impl Fn(i32) -> bool + Send + 'static,
) -> io::Result<()> {
    let mut signals = Signals::new(signals)?;
    let body = move || {
        signals.forever().all(receiver);
    };
    thread::Builder::new()
        .name("forebay-signals".to_owned())
        .spawn(body)?;
    Ok(())
}

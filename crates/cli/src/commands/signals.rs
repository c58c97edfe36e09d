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
    let mut signals = Signals::new(signals)?;
    let (sender, receiver) = mpsc::channel();
    let body = move || {
        for signal in signals.forever() {
            if sender.send(signal).is_err() {
                return;
            }
        }
    };
    thread::Builder::new()
        .name("forebay-signals".to_owned())
        .spawn(body)?;
    Ok(receiver)
}

//! The screen: three threads bring what happens, one draws.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::low_level::emulate_default_handler;

use super::feed::Feed;
use super::interval::Interval;
use super::terminal::{self, Key, Terminal};
use super::view::View;
use crate::commands::asking::CommandError;
use crate::commands::signals;
use crate::control::client::ClientError;
use crate::control::protocol::Activity;

enum Event {
    Look(Result<Activity, ClientError>),
    Key(Key),
    Signal(i32),
    /// Nobody is left at the terminal.
    HungUp,
}

/// Draws until q is pressed, a signal says to end, or the stack has gone.
pub(super) fn run(feed: Feed) -> Result<(), CommandError> {
    let mut view = View::new(feed.stack(), feed.interval());
    let stack = feed.stack().to_owned();
    let (events, received) = mpsc::channel();
    // Before the terminal is taken over: a signal in between must not leave it so.
    let sender = events.clone();
    let signals = [SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH];
    signals::hand_on(&signals, move |signal| {
        sender.send(Event::Signal(signal)).is_ok()
    })?;
    let terminal = Terminal::enter()?;
    spawn("keys", events.clone(), read_keys)?;
    spawn("feed", events, |events| look(feed, events))?;

    let mut before: Option<Activity> = None;
    // Where the terminal is gone that is to be drawn on, there is nobody to be told.
    while terminal.show(&view.draw(Terminal::size())).is_ok() {
        match received.recv() {
            Ok(Event::Look(looked)) => {
                let now = looked?;
                let between = |before: &Activity| Interval::between(&stack, before, &now);
                if let Some(interval) = before.as_ref().and_then(between) {
                    view.update(interval);
                }
                before = Some(now);
            }
            Ok(Event::Key(Key::Char('q' | 'Q'))) => break,
            Ok(Event::Key(key)) => view.press(key),
            // The next drawing asks for the size.
            Ok(Event::Signal(SIGWINCH)) => {}
            Ok(Event::Signal(SIGTSTP)) => {
                terminal.hand_over();
                emulate_default_handler(SIGTSTP)?;
                terminal.take_over()?;
            }
            Ok(Event::Signal(_) | Event::HungUp) | Err(_) => break,
        }
    }
    Ok(())
}

fn spawn(
    name: &str,
    events: Sender<Event>,
    body: impl FnOnce(&Sender<Event>) + Send + 'static,
) -> io::Result<()> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(move || body(&events)).map(drop)
}

fn look(mut feed: Feed, events: &Sender<Event>) {
    loop {
        let looked = feed.next();
        let is_over = looked.is_err();
        if events.send(Event::Look(looked)).is_err() || is_over {
            return;
        }
    }
}

fn read_keys(events: &Sender<Event>) {
    let mut bytes = [0; 64];
    loop {
        let read = match rustix::io::read(io::stdin(), &mut bytes) {
            Err(rustix::io::Errno::INTR) => continue,
            Ok(0) | Err(_) => {
                let _ = events.send(Event::HungUp);
                return;
            }
            Ok(read) => read,
        };
        for key in terminal::keys(bytes.get(..read).unwrap_or_default()) {
            if events.send(Event::Key(key)).is_err() {
                return;
            }
        }
    }
}

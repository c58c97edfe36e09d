//! Random and mutated packets through the whole path, while knobs, addresses, routes, rules,
//! sockets and links change and time passes. Nothing may panic, nothing may go on for ever, what
//! leaves must be packets, and at the end of each life of a stack every buffer must be home.
//!
//! A failure names the seed that repeats it: `FOREBAY_FUZZ_SEED=n` begins with that life.
//! `FOREBAY_FUZZ_SECS` says for how long to go on instead of two seconds.

#![allow(clippy::panic, reason = "a test that cannot go on panics")]

mod dice;
mod groups;
mod programs;
mod shapes;
mod world;

use std::env;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use dice::Dice;
use world::World;

/// Events in one stack's life.
const EVENTS: usize = 300;
/// A life takes milliseconds. One that takes this long never ends.
const PATIENCE: Duration = Duration::from_secs(60);

fn from_env(name: &str, default: u64) -> u64 {
    match env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text}: a number is wanted")),
        Err(_) => default,
    }
}

#[test]
fn nothing_breaks_whatever_comes() {
    let time = Duration::from_secs(from_env("FOREBAY_FUZZ_SECS", 2));
    let first = from_env("FOREBAY_FUZZ_SEED", 1);
    let current = AtomicU64::new(first);
    thread::scope(|scope| {
        let (alive, watch) = mpsc::channel();
        let current = &current;
        let lives = scope.spawn(move || {
            let start = Instant::now();
            let mut seed = first;
            while seed == first || start.elapsed() < time {
                current.store(seed, Ordering::Relaxed);
                live(seed);
                // Whoever watches is there as long as this is.
                let _ = alive.send(());
                seed = seed.wrapping_add(1);
            }
            seed.wrapping_sub(first)
        });
        loop {
            match watch.recv_timeout(PATIENCE) {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let seed = current.load(Ordering::Relaxed);
                    eprintln!("no end to it: FOREBAY_FUZZ_SEED={seed} repeats it");
                    // A thread that hangs can't be joined.
                    std::process::exit(1);
                }
            }
        }
        match lives.join() {
            Ok(lives) => eprintln!("{lives} lives of {EVENTS} events"),
            Err(panic) => panic::resume_unwind(panic),
        }
    });
}

/// One stack's life.
fn live(seed: u64) {
    let result = panic::catch_unwind(AssertUnwindSafe(|| {
        let dice = Dice::new(seed);
        let mut world = World::new(&dice);
        for _ in 0..EVENTS {
            world.happen(&dice);
        }
        world.end();
    }));
    if let Err(panic) = result {
        eprintln!("FOREBAY_FUZZ_SEED={seed} repeats it");
        panic::resume_unwind(panic);
    }
}

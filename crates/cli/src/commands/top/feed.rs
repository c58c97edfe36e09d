//! Asking a stack again and again.

use std::thread;
use std::time::{Duration, Instant};

use crate::control::client::{Client, ClientError};
use crate::control::protocol::Activity;

/// A stack ends conversations in which nothing is said for ten seconds.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// What a stack does, once an interval.
pub(super) struct Feed {
    client: Client,
    interval: Duration,
    /// When to ask next; at once before the first time.
    due: Option<Instant>,
}

impl Feed {
    pub(super) fn new(client: Client, interval: Duration) -> Self {
        Self {
            client,
            interval,
            due: None,
        }
    }

    /// The stack's name.
    pub(super) fn stack(&self) -> &str {
        self.client.stack()
    }

    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// Waits until the interval is over, and asks.
    pub(super) fn next(&mut self) -> Result<Activity, ClientError> {
        while let Some(due) = self.due
            && let left = due.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            thread::sleep(left.min(KEEP_ALIVE));
            if left > KEEP_ALIVE {
                self.ask()?;
            }
        }
        let answer = self.ask();
        // From the answer on: where it took its time, the next interval must not be the shorter.
        self.due = Instant::now().checked_add(self.interval);
        answer
    }

    fn ask(&mut self) -> Result<Activity, ClientError> {
        match self.client.activity() {
            // Stopped by Ctrl-Z for longer than the stack waits, say.
            Err(ClientError::Io(_)) => {
                let name = self.client.stack().to_owned();
                self.client = Client::connect(Some(&name))?;
                self.client.activity()
            }
            answer => answer,
        }
    }
}

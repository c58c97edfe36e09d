//! TEMP
use crate::socket::{SocketId, lock};
use crate::time::Instant;
use std::collections::BTreeMap;
use std::sync::Mutex;
#[derive(Default)]
pub(crate) struct Timers(Mutex<BTreeMap<(u64, SocketId), ()>>);
impl Timers {
    pub(crate) fn new() -> Self {
        Self::default()
    }
    pub(crate) fn schedule(&self, id: SocketId, at: Instant) {
        lock(&self.0).insert((at.as_nanos(), id), ());
    }
    pub(crate) fn expire(&self, now: Instant, mut f: impl FnMut(SocketId)) {
        let mut map = lock(&self.0);
        while let Some((&(at, id), ())) = map.first_key_value() {
            if at > now.as_nanos() {
                break;
            }
            map.pop_first();
            f(id);
        }
    }
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        lock(&self.0)
            .first_key_value()
            .map(|((at, _), ())| Instant::from_nanos(*at))
    }
}

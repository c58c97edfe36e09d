//! Established TCP connections of the kernel's.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use forebay::tcp_repair;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::refusal::{Refusal, Step};
use crate::bench::net::{Family, Prefixes};
use crate::random::Random;

/// Descriptors that this process needs for other things.
const SPARE: u64 = 64;

/// Local ports, from this one on; more connections than ports share them.
const FIRST_PORT: usize = 1_024;
const PORTS: usize = 60_000;

/// Connections of one family between our address and others anywhere; nothing is ever sent by them.
/// They end when this is dropped.
pub(super) struct Connections {
    family: Family,
    open: Vec<OwnedFd>,
    random: Random,
}

impl Connections {
    pub(super) fn none(family: Family) -> Self {
        Self {
            family,
            open: Vec::new(),
            random: Random::new(3),
        }
    }

    /// Opens connections until there are so many.
    pub(super) fn grow(&mut self, connections: usize) -> Result<(), Refusal> {
        let strangers = Prefixes::new(self.family);
        self.open
            .reserve(connections.saturating_sub(self.open.len()));
        while self.open.len() < connections {
            let port = (FIRST_PORT + self.open.len() % PORTS) as u16;
            let local = self.family.address(self.family.own());
            let peer = self.family.address(strangers.address(&mut self.random));
            let peer_port = (FIRST_PORT + self.random.below(PORTS)) as u16;
            let connection = tcp_repair::connection(
                SocketAddr::new(local, port),
                SocketAddr::new(peer, peer_port),
            );
            let connection = connection.map_err(Step::Connect(self.family).refused())?;
            self.open.push(connection);
        }
        Ok(())
    }
}

/// Raises the limit of open files for so many connections, if that is permitted, and says for how
/// many it is enough.
pub(super) fn permit(connections: u32) -> u32 {
    let wanted = u64::from(connections) + SPARE;
    let limit = getrlimit(Resource::Nofile);
    let is_enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= wanted);
    if is_enough(limit.current) {
        return connections;
    }
    // An ordinary user may go up to the maximum, root up to fs.nr_open.
    let maximum = if is_enough(limit.maximum) {
        limit.maximum
    } else {
        Some(wanted)
    };
    let raised = Rlimit {
        current: Some(wanted),
        maximum,
    };
    if setrlimit(Resource::Nofile, raised).is_ok() {
        return connections;
    }
    let most = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let permitted = match setrlimit(Resource::Nofile, most) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let permitted = permitted.map_or(connections.into(), |limit| limit.saturating_sub(SPARE));
    u32::try_from(permitted).map_or(connections, |permitted| permitted.min(connections))
}

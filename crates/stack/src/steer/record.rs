//! Where flows are read: who calls what before a record is made.
//!
//! Most stacks steer nothing, and reading a datagram must not cost them anything. So who reads looks
//! at the static key first, and at the socket second, which is at hand; only then is the table
//! looked up. Two callers, two forms: a socket's reader has checked both when it records, and takes
//! the form without a check; a device whose program sends knows no socket, and takes the form that
//! checks the key.

use crate::core::Core;
use crate::socket::{Mode, Slot};
use crate::stack::Stack;

impl Stack {
    /// A datagram of `slot`'s socket was read, whose packet had this hash (Linux's
    /// `sock_rps_record_flow`). Only flows of connected sockets are recorded: what others read
    /// comes from anybody, and would fill the table.
    #[inline(always)]
    pub(crate) fn sock_rps_record_flow(&self, core: &Core, slot: &Slot, hash: u32) {
        if self.steering.rfs_needed.is_enabled() {
            self.sock_rps_record_flow_of(core, slot, hash);
        }
    }

    #[inline(never)]
    fn sock_rps_record_flow_of(&self, core: &Core, slot: &Slot, hash: u32) {
        if slot.status().mode == Mode::Connected
            && let Some(cpu) = (self.steering.current_cpu)()
        {
            self.rps_record_sock_flow(core, hash, cpu);
        }
    }

    /// A flow is read on core `cpu`, if anybody wants to know (`sock_rps_record_flow_hash`).
    #[inline]
    pub fn sock_rps_record_flow_hash(&self, core: &Core, hash: u32, cpu: u16) {
        if self.steering.rfs_needed.is_enabled() {
            self.rps_record_sock_flow(core, hash, cpu);
        }
    }

    /// The same, unchecked: for callers that have looked at the key themselves
    /// (`rps_record_sock_flow`). Hash 0 is no flow.
    #[inline]
    pub fn rps_record_sock_flow(&self, core: &Core, hash: u32, cpu: u16) {
        let guard = core.reader.guard();
        let table = self.steering.sock_flows.read(&guard);
        if let Some(table) = table.as_ref().filter(|_| hash != 0) {
            table.record(hash, cpu);
        }
    }

    /// Entries of the table of flows that are in use, and how many it has
    /// (`net.core.rps_sock_flow_entries`).
    pub fn sock_flows(&self) -> (usize, usize) {
        let reader = self.domain.reader();
        let guard = reader.guard();
        let table = self.steering.sock_flows.read(&guard).as_ref();
        table.map_or((0, 0), |table| (table.used(), table.len() as usize))
    }

    /// How many of those entries say each core, by its number; about so many, in large tables. And
    /// how many entries there are. `None` if there is no table.
    pub fn sock_flows_by_cpu(&self) -> Option<(Vec<usize>, usize)> {
        let reader = self.domain.reader();
        let guard = reader.guard();
        let table = self.steering.sock_flows.read(&guard).as_ref();
        table.map(|table| (table.used_by_cpu(), table.len() as usize))
    }
}

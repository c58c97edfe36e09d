//! Two stacks joined by a wire, all in this process: one for the sink, one for the flood.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use forebay::device::wire::{WireConfig, WireEnd, wire};
use forebay::interface::TransmitQueue;
use forebay::{Stack, Workers};

use super::Family;

/// Where the sink is: the addresses of the stack of `forebay exec`.
const SINK_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
const SINK_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1));
const FLOOD_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2));
const FLOOD_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 2));

/// The stacks, each with a worker that drives it.
pub(crate) struct Rig {
    sink: Stack,
    flood: Stack,
    flood_queue: Arc<TransmitQueue>,
    _workers: [Workers; 2],
}

impl Rig {
    pub(crate) fn new() -> io::Result<Self> {
        let (near, far) = wire(WireConfig::default());
        let (sink, _) = host(near, [(SINK_V4, 24), (SINK_V6, 64)])?;
        let (flood, flood_queue) = host(far, [(FLOOD_V4, 24), (FLOOD_V6, 64)])?;
        Ok(Self {
            _workers: [sink.spawn_workers()?, flood.spawn_workers()?],
            sink,
            flood,
            flood_queue,
        })
    }

    /// The stack that receives.
    pub(crate) fn sink(&self) -> &Stack {
        &self.sink
    }

    /// The stack that sends.
    pub(crate) fn flood(&self) -> &Stack {
        &self.flood
    }

    /// What waits there for the wire.
    pub(crate) fn flood_queue(&self) -> Arc<TransmitQueue> {
        Arc::clone(&self.flood_queue)
    }

    /// Where the sink is.
    pub(crate) fn sink_addr(family: Family) -> IpAddr {
        match family {
            Family::V4 => SINK_V4,
            Family::V6 => SINK_V6,
        }
    }
}

/// A stack at one end, and what waits there for the wire.
fn host(end: WireEnd, addresses: [(IpAddr, u8); 2]) -> io::Result<(Stack, Arc<TransmitQueue>)> {
    let stack = Stack::builder().build()?;
    let ifindex = stack.add_device("w0", end)?;
    for (addr, len) in addresses {
        let added = stack.inner().add_address(ifindex, addr, len);
        added.map_err(io::Error::other)?;
    }
    let queue = stack.inner().transmit_queue(ifindex);
    Ok((stack, queue.ok_or(io::ErrorKind::NotFound)?))
}

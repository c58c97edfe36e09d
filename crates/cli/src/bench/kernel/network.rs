//! A router of the kernel's: two interfaces in a network namespace of its own.

use std::fs;
use std::io;
use std::net::IpAddr;

use forebay::bpf::{Link, Program};
use forebay::netif::{LinkKind, Netlink, Route};
use forebay::netns;
use rustix::io::Errno;

use super::refusal::{Refusal, Step};
use crate::bench::net::Family;

/// Where frames come in, and the other end of its cable, to which nothing is ever sent.
const NEAR: &str = "near";
const NEAR_PEER: &str = "veth0";

/// Where they leave, to be dropped.
const FAR: &str = "far";

/// Hardware addresses, administered locally.
pub(super) const NEAR_ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FAR_ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 2];

const EARLY_DEMUX: &str = "net.ipv4.ip_early_demux";

/// Knobs of a plain router. The namespace may have those of the system it is made on.
const KNOBS: [(&str, &str); 5] = [
    ("net.ipv4.ip_forward", "1"),
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
    ("net.ipv4.tcp_early_demux", "1"),
    ("net.ipv4.udp_early_demux", "1"),
];

/// The router, in the network namespace of the thread that made it; that thread can do all this, and
/// no other. When it ends and the last socket is closed, nothing is left.
#[derive(Debug)]
pub(super) struct Network {
    netlink: Netlink,
    near: u32,
    sink: LinkKind,
    early_demux: Option<bool>,
    attached: Vec<Link>,
}

impl Network {
    /// Moves the calling thread into a namespace and sets the interfaces up.
    pub(super) fn enter() -> Result<Self, Refusal> {
        netns::enter_new().map_err(Step::Namespace.refused())?;
        for (knob, value) in KNOBS {
            set(knob, value)?;
        }
        let mut netlink = Netlink::open().map_err(Step::Namespace.refused())?;
        netlink
            .add_link(NEAR, LinkKind::Veth, NEAR_ADDRESS)
            .map_err(Step::Link(LinkKind::Veth).refused())?;
        let sink = add_sink(&mut netlink)?;
        for name in [NEAR_PEER, NEAR, FAR] {
            bring_up(&mut netlink, name).map_err(Step::LinkUp.refused())?;
        }
        Ok(Self {
            near: netlink.index(NEAR).map_err(Step::LinkUp.refused())?,
            netlink,
            sink,
            early_demux: None,
            attached: Vec::new(),
        })
    }

    /// Adds addresses of a family, and a default route by a router behind the far interface.
    pub(super) fn add_family(&mut self, family: Family) -> Result<(), Refusal> {
        if family == Family::V6 {
            set("net.ipv6.conf.all.forwarding", "1")?;
        }
        // Neither contains the other's addresses.
        let prefix_len = match family {
            Family::V4 => 24,
            Family::V6 => 112,
        };
        let own = family.address(family.own());
        let far = family.address(family.gateway(1));
        let gateway = family.address(family.gateway(0));
        self.add_routes(own, far, prefix_len, gateway)
            .map_err(Step::Route(family).refused())
    }

    fn add_routes(
        &mut self,
        own: IpAddr,
        far: IpAddr,
        prefix_len: u8,
        gateway: IpAddr,
    ) -> io::Result<()> {
        let far_index = self.netlink.index(FAR)?;
        self.netlink.add_address(self.near, own, prefix_len)?;
        self.netlink.add_address(far_index, far, prefix_len)?;
        self.netlink.add_route(&Route::default_via(gateway))
    }

    /// Attaches programs that are going to let frames in, instead of others. No frame ever meets them
    /// where they are attached, but the kernel starts a program much faster that is in use somewhere.
    pub(super) fn attach(&mut self, programs: [&Program; 2]) -> Result<(), Refusal> {
        self.attached.clear();
        for (name, program) in [NEAR, NEAR_PEER].into_iter().zip(programs) {
            let link = self
                .netlink
                .index(name)
                .and_then(|index| program.attach(index));
            self.attached.push(link.map_err(Step::Attach.refused())?);
        }
        Ok(())
    }

    /// The index of the interface where frames come in.
    pub(super) fn near(&self) -> u32 {
        self.near
    }

    pub(super) fn set_early_demux(&mut self, on: bool) -> Result<(), Refusal> {
        if self.early_demux != Some(on) {
            set(EARLY_DEMUX, if on { "1" } else { "0" })?;
            self.early_demux = Some(on);
        }
        Ok(())
    }

    /// Packets that the far interface was told to send so far.
    pub(super) fn sent(&self) -> Result<u64, Refusal> {
        let statistics = fs::read_to_string("/proc/thread-self/net/dev");
        let statistics = statistics.map_err(Step::Count.refused())?;
        let sent = packets(&statistics, FAR, self.sink);
        sent.ok_or_else(|| Step::Count.refused()(Errno::NODEV.into()))
    }
}

fn bring_up(netlink: &mut Netlink, name: &str) -> io::Result<()> {
    let index = netlink.index(name)?;
    netlink.set_up(index)
}

/// An interface that drops what it is to send: a dummy, or where there are none an IFB, for which
/// all is redirected that was not redirected.
fn add_sink(netlink: &mut Netlink) -> Result<LinkKind, Refusal> {
    let is_unknown = |error: &io::Error| Errno::from_io_error(error) == Some(Errno::OPNOTSUPP);
    match netlink.add_link(FAR, LinkKind::Dummy, FAR_ADDRESS) {
        Err(error) if is_unknown(&error) => {}
        result => {
            result.map_err(Step::Link(LinkKind::Dummy).refused())?;
            return Ok(LinkKind::Dummy);
        }
    }
    let refused = || Step::Link(LinkKind::Ifb).refused();
    netlink
        .add_link(FAR, LinkKind::Ifb, FAR_ADDRESS)
        .map_err(refused())?;
    // A dummy has none, either.
    let index = netlink.index(FAR).map_err(refused())?;
    netlink.set_no_queue(index).map_err(refused())?;
    Ok(LinkKind::Ifb)
}

fn set(knob: &'static str, value: &str) -> Result<(), Refusal> {
    // The files are those of the thread that opens them.
    let path = format!("/proc/sys/{}", knob.replace('.', "/"));
    fs::write(path, value).map_err(Step::Knob(knob).refused())
}

/// Packets that an interface was given to send, by a table as in /proc/net/dev.
fn packets(statistics: &str, interface: &str, kind: LinkKind) -> Option<u64> {
    let mut lines = statistics.lines().map(str::trim_start);
    let counts = lines.find_map(|line| line.strip_prefix(interface)?.strip_prefix(':'))?;
    // Eight columns for what is received, then those for what is sent, each beginning with bytes.
    let column = match kind {
        LinkKind::Ifb => 1,
        _ => 9,
    };
    counts.split_whitespace().nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sink_counts_in_its_own_way() {
        let statistics = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
    lo:       0       1    0    0    0     0          0         0        0       2    0    0    0
   far:     364       3    0    4    0     0          0         0        0       5    0    0    0
";
        assert_eq!(packets(statistics, FAR, LinkKind::Ifb), Some(3));
        assert_eq!(packets(statistics, FAR, LinkKind::Dummy), Some(5));
        assert_eq!(packets(statistics, "lo", LinkKind::Dummy), Some(2));
        assert_eq!(packets(statistics, NEAR, LinkKind::Dummy), None);
    }
}

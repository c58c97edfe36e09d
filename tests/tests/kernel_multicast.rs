//! Multicast between the kernel's sockets and Forebay's, and what each of them tells routers.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use forebay::UdpSocket;
use forebay::device::Device;
use forebay::device::tun::{TunConfig, TunDevice};
use forebay_stack::packet::{PacketCache, PacketPool, PacketQueue};
use forebay_stack::socket::SocketId;
use forebay_stack::time::Instant as StackInstant;
use forebay_stack::udp::SourceChange;
use forebay_tests::groups::{GroupMessage, group_message, igmp_query, mld_query};
use forebay_tests::kernel::{Host, Lab, LabConfig, PATIENCE, in_private_network};
use forebay_tests::{Rig, V4, V6};
use socket2::SockRef;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const SSM_GROUP: Ipv4Addr = Ipv4Addr::new(232, 1, 2, 3);
const SOURCES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 7)];
const V6_GROUP: Ipv6Addr = Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 0x123);

#[test]
fn datagrams_to_groups_there_and_back() {
    in_private_network("datagrams_to_groups_there_and_back", || {
        for offload in [true, false] {
            let config = LabConfig {
                offload,
                ..LabConfig::default()
            };
            let Some(lab) = Lab::start(config) else {
                return;
            };
            let tun0 = lab
                .stack
                .inner()
                .interface_named("tun0")
                .expect("tun0")
                .index;
            let any4 = IpAddr::from([0_u8; 4]);
            let any6 = IpAddr::from([0_u8; 16]);
            for (any, group) in [(any4, IpAddr::from(GROUP)), (any6, V6_GROUP.into())] {
                let to = SocketAddr::new(group, 5_000);
                let ours = UdpSocket::bind(&lab.stack, SocketAddr::new(any, 5_000)).expect("bind");
                ours.set_read_timeout(Some(PATIENCE)).expect("timeout");
                let kernel = lab.left.udp(any, 5_000);
                match group {
                    IpAddr::V4(group) => {
                        ours.join_multicast_v4(&group, &V4::OWN).expect("join");
                        kernel.join_multicast_v4(&group, &V4::PEER).expect("join");
                    }
                    IpAddr::V6(group) => {
                        ours.join_multicast_v6(&group, tun0).expect("join");
                        kernel.join_multicast_v6(&group, 0).expect("join");
                    }
                }
                let mut buf = vec![0; 4_000];
                for size in [0, 4, 1_400, 3_000] {
                    let payload = vec![7; size];
                    // Both are members, and hear themselves, too.
                    kernel.send_to(&payload, to).expect("send");
                    assert_eq!(kernel.recv(&mut buf).expect("an echo"), size);
                    assert_eq!(ours.recv(&mut buf).expect("the kernel's"), size);
                    ours.send_to(&payload, to).expect("send");
                    assert_eq!(ours.recv(&mut buf).expect("an echo"), size);
                    assert_eq!(kernel.recv(&mut buf).expect("ours"), size);
                }
            }
        }
    });
}

/// The same memberships, the same queries: the same reports.
#[test]
fn routers_hear_what_the_kernel_tells_them() {
    in_private_network("routers_hear_what_the_kernel_tells_them", || {
        let Some(mut kernel) = Kernel::start() else {
            return;
        };
        let mut ours = Ours::new();
        for step in STEPS {
            let expected = kernel.hear(*step);
            let heard = ours.hear(*step);
            assert!(!expected.is_empty(), "{step:?}");
            assert_eq!(heard, expected, "{step:?}");
        }
    });
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Join,
    Leave,
    JoinV6,
    LeaveV6,
    JoinSource(usize),
    LeaveSource(usize),
    AskAll,
    AskAllV6,
    AskGroup,
    AskGroupV6,
    AskSource,
}

const STEPS: &[Step] = &[
    Step::Join,
    Step::JoinV6,
    Step::JoinSource(0),
    Step::JoinSource(1),
    Step::AskAll,
    Step::AskAllV6,
    Step::AskGroup,
    Step::AskGroupV6,
    Step::AskSource,
    Step::LeaveSource(0),
    Step::LeaveSource(1),
    Step::Leave,
    Step::LeaveV6,
];

impl Step {
    /// What a router asks for that.
    fn query(self) -> Option<Vec<u8>> {
        let tail = [2, 125, 0, 0];
        let about_source = [&[2, 125, 0, 1], &SOURCES[1].octets()[..]].concat();
        Some(match self {
            Self::AskAll => igmp_query(Ipv4Addr::UNSPECIFIED, 2, &tail),
            Self::AskAllV6 => mld_query(Ipv6Addr::UNSPECIFIED, 200, &tail),
            Self::AskGroup => igmp_query(GROUP, 2, &tail),
            Self::AskGroupV6 => mld_query(V6_GROUP, 200, &tail),
            Self::AskSource => igmp_query(SSM_GROUP, 2, &about_source),
            _ => return None,
        })
    }
}

/// What was said of each of our groups, without what was said twice.
type Heard = BTreeMap<IpAddr, Vec<(u8, Vec<IpAddr>)>>;

fn collect(packets: impl IntoIterator<Item = Vec<u8>>) -> Heard {
    let mut heard = Heard::new();
    for packet in packets {
        let Some(GroupMessage::Records(records)) = group_message(&packet) else {
            continue;
        };
        for (kind, group, mut sources) in records {
            if ![GROUP.into(), SSM_GROUP.into(), V6_GROUP.into()].contains(&group) {
                continue;
            }
            sources.sort();
            let said = heard.entry(group).or_default();
            let record = (kind, sources);
            if said.last() != Some(&record) {
                said.push(record);
            }
        }
    }
    heard
}

struct Kernel {
    host: Host,
    device: TunDevice,
    cache: PacketCache,
    member: std::net::UdpSocket,
    member6: std::net::UdpSocket,
}

impl Kernel {
    fn start() -> Option<Self> {
        let addresses = [(V4::OWN.into(), 24), (V6::OWN.into(), 64)];
        let gateways = [V4::PEER.into(), V6::PEER.into()];
        let tun = TunConfig {
            name: "tun0".into(),
            queues: 1,
            offload: false,
        };
        let (host, tun) = Host::start(tun, 1_500, &addresses, &gateways)?;
        let mut kernel = Self {
            member: host.udp(V4::OWN, 0),
            member6: host.udp(V6::OWN, 0),
            device: TunDevice::new(tun, 1_500, false),
            cache: PacketPool::new(256).cache(),
            host,
        };
        kernel.hasten();
        // What it says when an interface comes up, and what is said twice of that.
        kernel.listen(Duration::from_secs(2));
        Some(kernel)
    }

    /// Reports changes again within 0.2 seconds instead of 1 second.
    fn hasten(&self) {
        self.host.run(|| {
            for family in ["ipv4", "ipv6"] {
                let knob = match family {
                    "ipv4" => "igmpv3_unsolicited_report_interval",
                    _ => "mldv2_unsolicited_report_interval",
                };
                for conf in fs::read_dir(format!("/proc/sys/net/{family}/conf")).expect("knobs") {
                    let path = conf.expect("an interface").path().join(knob);
                    fs::write(path, "200").expect("a knob");
                }
            }
        });
    }

    fn hear(&mut self, step: Step) -> Heard {
        let member = SockRef::from(&self.member);
        match step {
            Step::Join => member.join_multicast_v4(&GROUP, &V4::OWN).expect("join"),
            Step::Leave => member.leave_multicast_v4(&GROUP, &V4::OWN).expect("leave"),
            Step::JoinV6 => self.member6.join_multicast_v6(&V6_GROUP, 0).expect("join"),
            Step::LeaveV6 => self
                .member6
                .leave_multicast_v6(&V6_GROUP, 0)
                .expect("leave"),
            Step::JoinSource(n) => member
                .join_ssm_v4(&SOURCES[n], &SSM_GROUP, &V4::OWN)
                .expect("join"),
            Step::LeaveSource(n) => member
                .leave_ssm_v4(&SOURCES[n], &SSM_GROUP, &V4::OWN)
                .expect("leave"),
            asked => self.send(&asked.query().expect("a query")),
        }
        collect(self.listen(PATIENCE))
    }

    fn send(&mut self, bytes: &[u8]) {
        let mut packet = self.cache.alloc().expect("a buffer");
        packet
            .put(bytes.len())
            .expect("room")
            .copy_from_slice(bytes);
        let mut queue = PacketQueue::new();
        queue.push(packet);
        self.device
            .transmit(StackInstant::ZERO, &mut queue, &mut self.cache)
            .expect("a device");
        assert!(queue.is_empty());
    }

    /// What is said until it has been quiet for longer than a repetition takes, or from the
    /// beginning for `patience`.
    fn listen(&mut self, patience: Duration) -> Vec<Vec<u8>> {
        let (mut last, mut heard) = (Instant::now(), Vec::new());
        let mut quiet = patience;
        while last.elapsed() < quiet {
            let mut queue = PacketQueue::new();
            self.device
                .receive(StackInstant::ZERO, &mut self.cache, &mut queue, 64)
                .expect("a device");
            while let Some(packet) = queue.pop() {
                let bytes: Vec<u8> = packet.chunks().flatten().copied().collect();
                if group_message(&bytes).is_some() {
                    (last, quiet) = (Instant::now(), Duration::from_millis(700));
                    heard.push(bytes);
                }
                self.cache.free(packet);
            }
            thread::sleep(Duration::from_millis(5));
        }
        heard
    }
}

struct Ours {
    rig: Rig,
    member: SocketId,
}

impl Ours {
    fn new() -> Self {
        let rig = Rig::new();
        let member = rig.open(V6::OWN.into());
        Self { rig, member }
    }

    fn hear(&mut self, step: Step) -> Heard {
        let (stack, id) = (&self.rig.stack, self.member);
        let tun0 = Some(self.rig.ifindex("tun0"));
        let source = |n: usize, what| {
            let source = SOURCES[n].into();
            stack
                .udp_change_source(id, SSM_GROUP.into(), source, tun0, what)
                .expect("a change");
        };
        match step {
            Step::Join => stack.udp_join_group(id, GROUP.into(), tun0).expect("join"),
            Step::Leave => stack
                .udp_leave_group(id, GROUP.into(), tun0)
                .expect("leave"),
            Step::JoinV6 => stack
                .udp_join_group(id, V6_GROUP.into(), tun0)
                .expect("join"),
            Step::LeaveV6 => stack
                .udp_leave_group(id, V6_GROUP.into(), tun0)
                .expect("leave"),
            Step::JoinSource(n) => source(n, SourceChange::Join),
            Step::LeaveSource(n) => source(n, SourceChange::Leave),
            asked => self.rig.inject("tun0", asked.query().expect("a query")),
        }
        let mut heard = Vec::new();
        for _ in 0..30 {
            self.rig.poll();
            heard.extend(self.rig.output("tun0"));
            self.rig.advance(Duration::from_millis(100));
        }
        collect(heard)
    }
}

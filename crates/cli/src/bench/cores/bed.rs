//! A stack with workers, and traffic for it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use forebay::core::fib::Prefix;
use forebay::{Stack, UdpSocket, Workers};
use rustix::thread::{sched_getaffinity, sched_setaffinity};

use super::reader::{Reader, Seen, pin};
use super::traffic::{Lane, Window, sink, source};
use super::{Setting, Traffic};
use crate::bench::bed::add_route;
use crate::bench::net::Family;
use crate::bench::packet::Flow;

/// Flows that are forwarded.
const FLOWS: u32 = 128;

/// Bytes of a socket's queue: as many datagrams as a worker takes in a turn, and some.
const RECEIVE_BUFFER: u32 = 1 << 20;

/// Entries of the tables of flows.
const TABLE: u32 = 4_096;

/// Between opening the window and the first packet.
const RUN_UP: Duration = Duration::from_millis(2);

/// How often to try a round.
const ATTEMPTS: u32 = 100;

/// How long to wait for packets that should have come.
const PATIENCE: Duration = Duration::from_secs(10);

/// A stack with its workers, asleep between rounds.
pub(super) struct Bed {
    stack: Stack,
    _workers: Workers,
    window: Arc<Window>,
    sources: Vec<Arc<Lane>>,
    /// Of the far device, where packets are forwarded.
    sinks: Vec<Arc<Lane>>,
    /// Where they are not: a socket for each flow, and the lowest number that its next datagram can
    /// have.
    sockets: Vec<(UdpSocket, u32)>,
    setting: Setting,
}

/// What a round saw.
#[derive(Debug, Clone, Default)]
pub(super) struct Round {
    /// Packets that arrived, by flow.
    pub(super) by_flow: Vec<u64>,
    pub(super) sent: u64,
    /// Packets that workers handled, and those of them that another worker had given them.
    pub(super) handled: u64,
    pub(super) crossed: u64,
    /// Of packets that workers handled, those on the core that the reader was on; none where there
    /// is not one reader.
    pub(super) at_home: Option<(u64, u64)>,
}

impl Round {
    pub(super) fn arrived(&self) -> u64 {
        self.by_flow.iter().sum()
    }
}

/// What the stack has counted.
#[derive(Clone, Copy, Default)]
struct Counts {
    sent: u64,
    handled: u64,
    crossed: u64,
    dropped: u64,
}

impl Bed {
    pub(super) fn new(
        family: Family,
        setting: Setting,
        processors: &[usize],
    ) -> anyhow::Result<Self> {
        let flows: Arc<[Flow]> = flows(family, setting.traffic);
        let queues = match setting.traffic {
            Traffic::Forward | Traffic::Udp => usize::from(setting.workers),
            // All of a flow comes by one queue, on the first worker.
            Traffic::Flood | Traffic::Moving => 1,
        };
        let stack = Stack::builder()
            .workers(setting.workers.into())
            .seed([1, 2])
            .build()?;
        let inner = stack.inner();
        for knob in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            inner.set_sysctl(knob, "1")?;
        }
        let window = Arc::new(Window::default());
        let (device, sources) = source(family, &flows, queues, &window);
        let near = stack.add_device("near", device)?;
        inner.add_address(near, family.address(family.own()), family.bits())?;
        let (mut sinks, mut sockets, mut out) = (Vec::new(), Vec::new(), near);
        if setting.traffic == Traffic::Forward {
            let (device, lanes) = sink(family, &flows, queues);
            out = stack.add_device("far", device)?;
            sinks = lanes;
        }
        match family.address(family.gateway(0)) {
            IpAddr::V4(gateway) => add_route(inner.fib4(), Prefix::DEFAULT, gateway, out)?,
            IpAddr::V6(gateway) => add_route(inner.fib6(), Prefix::DEFAULT, gateway, out)?,
        }
        if setting.traffic != Traffic::Forward {
            let open = |flow| Ok((open(&stack, family, flow)?, 0));
            sockets = flows.iter().map(open).collect::<anyhow::Result<_>>()?;
        }
        for queue in 0..queues {
            let set = |knob: &str, value: &str| {
                inner.set_sysctl(&format!("class/net/near/queues/rx-{queue}/{knob}"), value)
            };
            if setting.rps {
                set("rps_cpus", "3")?;
            }
            if setting.rfs {
                set("rps_flow_cnt", &TABLE.to_string())?;
                inner.set_sysctl("net.core.rps_sock_flow_entries", &TABLE.to_string())?;
            }
        }
        Ok(Self {
            _workers: spawn_workers(&stack, setting, processors)?,
            stack,
            window,
            sources,
            sinks,
            sockets,
            setting,
        })
    }

    /// A round in which packets arrive. Where other programs leave no time to the workers while the
    /// window is open, it is opened once more.
    pub(super) fn run_some(
        &mut self,
        length: Duration,
        processors: &[usize],
    ) -> anyhow::Result<Round> {
        for _ in 0..ATTEMPTS {
            let round = self.run(length, processors)?;
            if round.arrived() > 0 {
                return Ok(round);
            }
        }
        bail!("no packet arrives");
    }

    /// Lets packets in for so long, and looks for every one of them.
    fn run(&mut self, length: Duration, processors: &[usize]) -> anyhow::Result<Round> {
        let before = self.counts();
        let sinks_before = Lane::by_flow_of_all(&self.sinks);
        let start = self.stack.now() + RUN_UP;
        self.window.open(start, start + length);
        let seen = self.read(length, processors)?;
        let after = self.counts();
        let sinks = Lane::by_flow_of_all(&self.sinks);
        let forwarded = sinks.iter().zip(&sinks_before);
        let by_flow: Vec<u64> = match self.setting.traffic {
            Traffic::Forward => forwarded
                .take(FLOWS as usize)
                .map(|(now, before)| now.wrapping_sub(*before).into())
                .collect(),
            _ => seen.iter().map(|seen| seen.datagrams).collect(),
        };
        let round = Round {
            by_flow,
            sent: after.sent - before.sent,
            handled: after.handled - before.handled,
            crossed: after.crossed - before.crossed,
            at_home: match seen.as_slice() {
                [seen] => Some((seen.at_home, seen.anywhere)),
                _ => None,
            },
        };
        let dropped = after.dropped - before.dropped;
        let wrong: u64 = self.sinks.iter().map(|lane| lane.wrong()).sum();
        ensure!(wrong == 0, "{wrong} packets came out wrong or out of order");
        ensure!(!self.is_split(), "a flow came out by two queues");
        ensure!(
            round.arrived() + dropped == round.sent,
            "of {} packets {} arrived and {dropped} were dropped",
            round.sent,
            round.arrived(),
        );
        Ok(round)
    }

    /// Reads from all sockets until everything has come.
    fn read(&mut self, length: Duration, processors: &[usize]) -> anyhow::Result<Vec<Seen>> {
        let mut sockets = std::mem::take(&mut self.sockets);
        let stop = AtomicBool::new(false);
        let start = self.stack.now() + RUN_UP;
        let (moves, stop) = (self.setting.traffic == Traffic::Moving, &stop);
        let seen = thread::scope(|scope| {
            let readers = sockets.iter_mut().zip(0_usize..);
            let readers: Vec<_> = readers
                .map(|((socket, expected), nth)| {
                    let reader = Reader {
                        stack: &self.stack,
                        socket,
                        // Where its packets do not come in.
                        place: nth + 1,
                        moves,
                        start,
                        expected,
                    };
                    scope.spawn(move || reader.run(processors, stop))
                })
                .collect();
            thread::sleep(RUN_UP + length);
            let settled = self.settle();
            stop.store(true, Ordering::Release);
            let joined = readers.into_iter().map(|reader| {
                let seen = reader.join();
                seen.map_err(|_| anyhow!("a reader panicked"))?
            });
            let seen = joined.collect::<anyhow::Result<Vec<_>>>()?;
            settled.map(|()| seen)
        });
        self.sockets = sockets;
        seen
    }

    /// Waits until the workers have dealt with all that came in.
    fn settle(&self) -> anyhow::Result<()> {
        let deadline = self.stack.now() + PATIENCE;
        let end = self.window.end();
        while self.stack.now() < deadline {
            let counts = self.counts();
            let arrived: u64 = self.sinks.iter().map(|lane| lane.packets()).sum();
            let is_over = self.sources.iter().all(|lane| lane.is_past(end));
            let is_all = match self.setting.traffic {
                Traffic::Forward => arrived + counts.dropped == counts.sent,
                _ => counts.handled + self.backlog_drops() == counts.sent,
            };
            if is_over && is_all {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(1));
        }
        bail!("packets are missing");
    }

    fn backlog_drops(&self) -> u64 {
        let counters = self.stack.inner().counters();
        counters.dropped(forebay::drop::DropReason::CpuBacklog)
    }

    fn counts(&self) -> Counts {
        let inner = self.stack.inner();
        let stats = (0..).map_while(|cpu| inner.softnet_stats(cpu));
        let mut counts = Counts {
            sent: self.sources.iter().map(|lane| lane.packets()).sum(),
            dropped: inner.counters().dropped_total(),
            ..Counts::default()
        };
        for stats in stats {
            counts.handled += stats.processed;
            counts.crossed += stats.received_rps;
        }
        counts
    }

    /// Whether a flow came out by more than one queue, so that its order is not known.
    fn is_split(&self) -> bool {
        let lanes: Vec<_> = self.sinks.iter().map(|lane| lane.by_flow()).collect();
        let has = |lane: &Vec<u32>, flow| lane.get(flow).is_some_and(|packets| *packets > 0);
        (0..FLOWS as usize).any(|flow| lanes.iter().filter(|lane| has(lane, flow)).count() > 1)
    }
}

/// Two workers keep themselves on the first two processors; one is kept on the first here.
fn spawn_workers(stack: &Stack, setting: Setting, processors: &[usize]) -> anyhow::Result<Workers> {
    let everywhere = sched_getaffinity(None)?;
    if setting.workers == 1 {
        pin(0, processors)?;
    }
    let workers = stack.spawn_workers();
    sched_setaffinity(None, &everywhere)?;
    Ok(workers?)
}

pub(super) fn flows(family: Family, traffic: Traffic) -> Arc<[Flow]> {
    let flow = |nth: u32| Flow {
        src: family.peer(),
        src_port: 1_024 + nth as u16,
        dst: match traffic {
            Traffic::Forward => family.peer() + 0x10_0000 + u128::from(nth),
            _ => family.own(),
        },
        dst_port: 1_024 + nth as u16,
    };
    let flows = match traffic {
        Traffic::Forward => FLOWS,
        Traffic::Udp => 2,
        Traffic::Flood | Traffic::Moving => 1,
    };
    (0..flows).map(flow).collect()
}

/// A connected socket for the flow.
fn open(stack: &Stack, family: Family, flow: &Flow) -> anyhow::Result<UdpSocket> {
    let own = SocketAddr::new(family.address(flow.dst), flow.dst_port);
    let socket = UdpSocket::bind(stack, own)?;
    socket.force_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.connect(SocketAddr::new(family.address(flow.src), flow.src_port))?;
    Ok(socket)
}

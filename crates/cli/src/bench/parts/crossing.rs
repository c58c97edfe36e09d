//! What it costs to go from one core to another: a cache line, packets, a wake-up.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use forebay::core::core::Core;
use forebay::core::packet::PacketQueue;
use forebay::core::time::Instant;
use forebay::core::{Stack, StackConfig};
use forebay::interface::InterfaceConfig;
use forebay::steer::RxId;

use crate::bench::cores::pin;
use crate::bench::net::Family;
use crate::bench::packet::{self, Flow, LEN, Protocol};
use crate::bench::statistics::middle_mean;
use crate::clock::Clock;

/// Times that the line goes to and fro.
const PASSES: u64 = 10_000;

/// Packets that are handed over in a chunk.
const PACKETS: usize = 16_384;

/// Times that somebody is woken in a chunk, and how long he is left to fall asleep.
const CALLS: u32 = 50;
const NAP: Duration = Duration::from_micros(200);

/// On lines that it has for itself.
#[repr(align(128))]
#[derive(Default)]
struct Alone<T>(T);

/// Ticks until a core sees what another has written.
pub(super) fn line(clock: &Clock, processors: &[usize]) -> anyhow::Result<f64> {
    let ball = Alone(AtomicU64::new(0));
    on_both(
        processors,
        || {
            let start = clock.now();
            for pass in 0..PASSES {
                ball.0.store(2 * pass + 1, Ordering::Release);
                wait_for(|| ball.0.load(Ordering::Acquire) == 2 * pass + 2);
            }
            Ok(clock.now().wrapping_sub(start) as f64 / (2 * PASSES) as f64)
        },
        || {
            for pass in 0..PASSES {
                wait_for(|| ball.0.load(Ordering::Acquire) == 2 * pass + 1);
                ball.0.store(2 * pass + 2, Ordering::Release);
            }
            Ok(())
        },
    )
}

/// Ticks a packet.
pub(super) struct Handover {
    /// Of a core that handles what it takes in.
    pub(super) own: f64,
    /// Of one that gives all to another.
    pub(super) give: f64,
    /// Of that other one.
    pub(super) take_up: f64,
}

/// Bursts of so many packets go to the other core, one after the other; the packets are of a flow to
/// nobody, and dropped without an answer.
pub(super) fn handover(
    clock: &Clock,
    processors: &[usize],
    burst: usize,
) -> anyhow::Result<Handover> {
    let stack = Stack::new(&StackConfig {
        seed: [1, 2],
        ..StackConfig::default()
    });
    let family = Family::V4;
    let near = stack.add_interface(InterfaceConfig::new("near"))?;
    stack.add_address(near, family.address(family.own()), 24)?;
    let (mut first, mut second) = (stack.core_on(0), stack.core_on(1));
    let bursts = PACKETS.div_ceil(burst);
    let (given, taken) = (Alone(AtomicU32::new(0)), Alone(AtomicU32::new(0)));
    let now = Instant::ZERO;

    let mut take_up = 0.0;
    let (own, give) = on_both(
        processors,
        || {
            let own = take_in(clock, &stack, &mut first, near, burst, bursts, |_| {})?;
            stack.set_sysctl("class/net/near/queues/rx-0/rps_cpus", "2")?;
            let give = take_in(clock, &stack, &mut first, near, burst, bursts, |number| {
                given.0.store(number, Ordering::Release);
                wait_for(|| taken.0.load(Ordering::Acquire) == number);
            })?;
            Ok((own, give))
        },
        || {
            let mut ticks = Vec::with_capacity(bursts);
            for number in 1..=bursts as u32 {
                wait_for(|| given.0.load(Ordering::Acquire) == number);
                let start = clock.now();
                stack.receive_backlog(&mut second, now, burst);
                ticks.push(clock.now().wrapping_sub(start));
                taken.0.store(number, Ordering::Release);
            }
            take_up = middle_mean(ticks) / burst as f64;
            Ok(())
        },
    )?;
    let stats = stack.softnet_stats(1).context("no second core")?;
    let packets = (bursts * burst) as u64;
    ensure!(
        stats.received_rps == packets,
        "of {packets} packets {} were handed over",
        stats.received_rps
    );
    Ok(Handover { own, give, take_up })
}

/// Ticks a packet of a core that takes in bursts, each of which is followed by something else.
fn take_in(
    clock: &Clock,
    stack: &Stack,
    core: &mut Core,
    near: u32,
    burst: usize,
    bursts: usize,
    mut then: impl FnMut(u32),
) -> anyhow::Result<f64> {
    let family = Family::V4;
    // To the network's broadcast address, where nobody listens: no error is sent.
    let flow = Flow {
        src: family.peer(),
        src_port: 1_024,
        dst: family.own() | 0xff,
        dst_port: 1_024,
    };
    let built = packet::build(family, Protocol::Udp, &flow, 0);
    let from = RxId {
        ifindex: near,
        queue: 0,
    };
    let mut ticks = Vec::with_capacity(bursts);
    for number in 1..=bursts {
        let mut packets = PacketQueue::new();
        for _ in 0..burst {
            let mut out = core.cache().alloc().context("no buffer")?;
            ensure!(out.set_len(LEN), "a buffer is too small");
            out.data_mut().copy_from_slice(&built);
            packets.push(out);
        }
        let start = clock.now();
        stack.receive_from(core, Instant::ZERO, from, &mut packets);
        ticks.push(clock.now().wrapping_sub(start));
        then(number as u32);
    }
    Ok(middle_mean(ticks) / burst as f64)
}

/// Ticks of a wake-up.
pub(super) struct WakeUp {
    /// Of who wakes.
    pub(super) cost: f64,
    /// Until the other one runs.
    pub(super) delay: f64,
}

/// Wakes a thread that sleeps on the other core.
pub(super) fn wake_up(clock: &Clock, processors: &[usize]) -> anyhow::Result<WakeUp> {
    let (called, seen) = (Alone(AtomicU64::new(0)), Alone(AtomicU64::new(0)));
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            pin(1, processors)?;
            for _ in 0..CALLS {
                while called.0.swap(0, Ordering::AcqRel) == 0 {
                    thread::park();
                }
                seen.0.store(clock.now(), Ordering::Release);
            }
            anyhow::Ok(())
        });
        let thread = sleeper.thread().clone();
        let (called, seen) = (&called, &seen);
        let waker = scope.spawn(move || {
            pin(0, processors)?;
            let (mut costs, mut delays) = (Vec::new(), Vec::new());
            for _ in 0..CALLS {
                thread::sleep(NAP);
                seen.0.store(0, Ordering::Relaxed);
                let start = clock.now();
                called.0.store(1, Ordering::Release);
                thread.unpark();
                costs.push(clock.now().wrapping_sub(start));
                wait_for(|| seen.0.load(Ordering::Acquire) != 0);
                delays.push(seen.0.load(Ordering::Relaxed).wrapping_sub(start));
            }
            anyhow::Ok(WakeUp {
                cost: middle_mean(costs),
                delay: middle_mean(delays),
            })
        });
        let joined = waker.join().map_err(|_| anyhow!("a thread panicked"))?;
        sleeper.join().map_err(|_| anyhow!("a thread panicked"))??;
        joined
    })
}

/// Runs one of them on the first processor, the other one on the second.
fn on_both<R: Send>(
    processors: &[usize],
    first: impl FnOnce() -> anyhow::Result<R> + Send,
    second: impl FnOnce() -> anyhow::Result<()> + Send,
) -> anyhow::Result<R> {
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            pin(1, processors)?;
            second()
        });
        let first = scope.spawn(|| {
            pin(0, processors)?;
            first()
        });
        let result = first.join().map_err(|_| anyhow!("a thread panicked"))?;
        second.join().map_err(|_| anyhow!("a thread panicked"))??;
        result
    })
}

fn wait_for(is_there: impl Fn() -> bool) {
    while !is_there() {
        std::hint::spin_loop();
    }
}

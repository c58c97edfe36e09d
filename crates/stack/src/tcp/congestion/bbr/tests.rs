use super::*;
use crate::tcp::congestion::pipe::{Flow, Pipe};
use crate::tcp::congestion::{Algorithm, Congestion};

const SECOND: Duration = Duration::from_secs(1);

fn pipe(rate: u64, delay_ms: u64, queue: usize) -> Pipe {
    Pipe {
        rate,
        delay: Duration::from_millis(delay_ms),
        queue,
        lose_one_in: None,
    }
}

fn flow(pipe: Pipe) -> Flow {
    pipe.flow(Congestion::new(Algorithm::Bbr, 10, Instant::ZERO))
}

fn bbr(flow: &Flow) -> &Bbr {
    match &flow.congestion {
        Congestion::Bbr(bbr) => bbr,
        other => unreachable!("{other:?}"),
    }
}

/// Runs until the mode is one of these.
fn run_until(flow: &mut Flow, is: impl Fn(Mode) -> bool) -> Duration {
    let start = flow.now;
    while !is(bbr(flow).mode) {
        flow.run(Duration::from_micros(100));
        assert!(flow.now - start < 60 * SECOND, "{:?}", bbr(flow).mode);
    }
    flow.now - start
}

fn assert_near(actual: f64, expected: f64, tolerance: f64) {
    assert!(
        (actual - expected).abs() <= tolerance * expected,
        "{actual} is not {expected} +- {tolerance}"
    );
}

#[test]
fn starts_drains_and_settles_at_the_bandwidth() {
    // 80 Mbit/s and 40 ms: 267 packets.
    let mut flow = flow(pipe(10_000_000, 40, 1000));
    assert!(flow.congestion.wants_pacing());
    assert_eq!(flow.congestion.pacing_rate(), None);
    let startup = run_until(&mut flow, |mode| mode == Mode::Drain);
    // 5 rounds from 10 to 267 packets, then 3 without growth, each with some queue.
    assert!(startup < 20 * Duration::from_millis(40), "{startup:?}");
    assert_near(bbr(&flow).bandwidth.get() as f64, 1e7, 0.02);
    // And three bursts of a millisecond at 2.885 times the pace.
    let ssthresh = flow.congestion.ssthresh();
    assert!((267 + 54..=267 + 60).contains(&ssthresh), "{ssthresh}");
    let drain = run_until(&mut flow, |mode| matches!(mode, Mode::ProbeBw { .. }));
    assert!(drain < 4 * Duration::from_millis(40), "{drain:?}");
    flow.measure(8 * SECOND);
    assert_eq!(flow.lost, 0);
    assert_near(flow.throughput() as f64, 1e7, 0.03);
    assert_near(flow.mean_rtt().as_secs_f64(), 0.040, 0.15);
}

#[test]
fn paths_of_all_kinds() {
    for (rate, delay, queue) in [
        (125_000, 20, 50),
        (1_250_000, 100, 200),
        (12_500_000, 10, 200),
        (125_000_000, 1, 500),
        (5_000_000, 200, 100),
    ] {
        let mut flow = flow(pipe(rate, delay, queue));
        flow.run(5 * SECOND);
        flow.measure(5 * SECOND);
        assert_near(flow.throughput() as f64, rate as f64, 0.07);
        // Once in a while a queue of a quarter of a round trip, and what is left for three bursts:
        // of a millisecond, or a few packets.
        let bursts = 0.003 + 10.0 * 1500.0 / rate as f64;
        assert!(
            flow.mean_rtt().as_secs_f64() < 1.3 * delay as f64 / 1e3 + bursts,
            "{rate} {delay} {:?}",
            flow.mean_rtt()
        );
    }
}

#[test]
fn random_loss_does_not_slow_it_down() {
    let lossy = Pipe {
        lose_one_in: Some(50),
        ..pipe(5_000_000, 50, 200)
    };
    let mut bbr = flow(lossy);
    bbr.run(3 * SECOND);
    bbr.measure(10 * SECOND);
    assert!(bbr.throughput() > 4_300_000, "{}", bbr.throughput());
    let mut reno = lossy.flow(Congestion::new(Algorithm::Reno, 10, Instant::ZERO));
    reno.run(3 * SECOND);
    reno.measure(10 * SECOND);
    assert!(
        reno.throughput() * 5 < bbr.throughput(),
        "{}",
        reno.throughput()
    );
}

#[test]
fn a_deep_queue_stays_empty() {
    let deep = pipe(2_000_000, 20, 10_000);
    let mut bbr = flow(deep);
    bbr.run(2 * SECOND);
    bbr.measure(5 * SECOND);
    assert!(
        bbr.mean_rtt() < Duration::from_millis(30),
        "{:?}",
        bbr.mean_rtt()
    );
    assert_near(bbr.throughput() as f64, 2e6, 0.03);
}

#[test]
fn follows_a_path_that_grows_and_shrinks() {
    let mut flow = flow(pipe(2_000_000, 40, 500));
    flow.run(3 * SECOND);
    flow.pipe.rate = 6_000_000;
    flow.run(4 * SECOND);
    flow.measure(3 * SECOND);
    assert_near(flow.throughput() as f64, 6e6, 0.05);
    flow.pipe.rate = 1_000_000;
    flow.run(6 * SECOND);
    flow.measure(3 * SECOND);
    assert_near(flow.throughput() as f64, 1e6, 0.05);
    assert_near(bbr(&flow).bandwidth.get() as f64, 1e6, 0.05);
}

#[test]
fn looks_for_the_round_trip_every_ten_seconds() {
    let mut flow = flow(pipe(2_000_000, 40, 500));
    run_until(&mut flow, |mode| matches!(mode, Mode::ProbeBw { .. }));
    // The path becomes longer: what is known of it holds for ten seconds.
    flow.pipe.delay = Duration::from_millis(60);
    flow.run(5 * SECOND);
    assert!(bbr(&flow).min_rtt.unwrap() < Duration::from_millis(42));
    let wait = run_until(&mut flow, |mode| matches!(mode, Mode::ProbeRtt { .. }));
    assert!(wait < 7 * SECOND, "{wait:?}");
    let probe = run_until(&mut flow, |mode| matches!(mode, Mode::ProbeBw { .. }));
    assert!(probe >= PROBE_RTT_TIME, "{probe:?}");
    assert!(
        probe < PROBE_RTT_TIME + Duration::from_millis(250),
        "{probe:?}"
    );
    let min_rtt = bbr(&flow).min_rtt.unwrap();
    assert_near(min_rtt.as_secs_f64(), 0.0608, 0.02);
    // The bandwidth was not forgotten meanwhile.
    assert_near(bbr(&flow).bandwidth.get() as f64, 2e6, 0.05);
    flow.measure(2 * SECOND);
    assert_near(flow.throughput() as f64, 2e6, 0.05);
}

#[test]
fn little_is_under_way_while_it_looks() {
    let mut flow = flow(pipe(2_000_000, 40, 500));
    run_until(&mut flow, |mode| matches!(mode, Mode::ProbeBw { .. }));
    flow.pipe.delay = Duration::from_millis(60);
    run_until(&mut flow, |mode| matches!(mode, Mode::ProbeRtt { .. }));
    let before = bbr(&flow).recovery.prior_cwnd;
    assert_eq!(flow.congestion.cwnd(), MIN_CWND);
    run_until(&mut flow, |mode| matches!(mode, Mode::ProbeBw { .. }));
    assert!(flow.congestion.cwnd() >= before * 9 / 10);
}

fn sample(now: Instant, delivered: u64, prior: u64) -> AckSample {
    let rtt = Duration::from_millis(50);
    AckSample {
        now,
        acked: delivered as u32,
        in_flight: 2 * delivered as u32,
        rtt: Some(rtt),
        min_rtt: Some(rtt),
        srtt: Some(rtt),
        mss: 1000,
        rate: Some(RateSample {
            bytes_per_sec: delivered * 1000 * 20,
            interval: rtt,
            is_app_limited: false,
            delivered,
            prior_delivered: prior,
            losses: 0,
        }),
        is_cwnd_limited: true,
        in_recovery: false,
    }
}

/// One that has seen 2 MB/s and 50 ms for some rounds; what it has delivered, and when.
fn settled(first: u64) -> (Bbr, u64, Instant) {
    let mut now = Instant::ZERO;
    let mut bbr = Bbr::new(Window::new(10), now);
    bbr.round_end = first as u32;
    let mut prior = first;
    for _ in 0..30 {
        now += Duration::from_millis(50);
        bbr.on_ack(&sample(now, 100, prior & 0xffff_ffff));
        prior += 100;
    }
    (bbr, prior, now)
}

#[test]
fn the_first_pace_is_that_of_the_first_window() {
    let mut bbr = Bbr::new(Window::new(10), Instant::ZERO);
    bbr.on_ack(&AckSample {
        rate: None,
        ..sample(Instant::ZERO, 1, 0)
    });
    // 10 packets of 1000 bytes in 50 ms, with gain and margin.
    assert_near(bbr.pacing_rate().unwrap() as f64, 571_230.0, 0.01);
}

#[test]
fn counts_of_packets_may_wrap() {
    for first in [0, 0x7fff_ff00, 0xffff_fb00] {
        let (bbr, ..) = settled(first);
        assert_eq!(bbr.round, 30, "{first:#x}");
        assert!(bbr.full.is_reached);
        assert_eq!(bbr.bandwidth.get(), 2_000_000);
        // Twice 100 packets, three bursts of two, some for lumps and for trying.
        assert!((206..=310).contains(&bbr.cwnd()), "{}", bbr.cwnd());
    }
}

#[test]
fn what_the_application_left_out_says_nothing_of_the_path() {
    let (mut bbr, mut prior, mut now) = settled(0);
    for rate in [100, 4_000_000] {
        for _ in 0..20 {
            now += Duration::from_millis(50);
            let mut slow = sample(now, 1, prior);
            slow.rate = slow.rate.map(|it| RateSample {
                bytes_per_sec: rate,
                is_app_limited: true,
                ..it
            });
            bbr.on_ack(&slow);
            prior += 1;
        }
        assert_eq!(bbr.bandwidth.get(), rate.max(2_000_000));
    }
}

#[test]
fn recovery_sends_what_comes_for_a_round_then_goes_back() {
    let (mut bbr, prior, now) = settled(0);
    let before = bbr.cwnd();
    bbr.ssthresh_after_loss(now);
    let mut lossy = sample(now, 100, prior - 50);
    lossy.in_recovery = true;
    lossy.acked = 2;
    lossy.in_flight = 150;
    lossy.rate = lossy.rate.map(|it| RateSample { losses: 8, ..it });
    bbr.on_ack(&lossy);
    assert_eq!(bbr.cwnd(), 142);
    bbr.on_ack(&AckSample {
        in_recovery: false,
        ..sample(now, 100, prior)
    });
    assert!(bbr.cwnd() >= before, "{} {before}", bbr.cwnd());
}

#[test]
fn comes_back_after_a_timeout() {
    let (mut bbr, mut prior, mut now) = settled(0);
    let before = bbr.cwnd();
    bbr.ssthresh_after_loss(now);
    bbr.on_rto(now);
    assert_eq!(bbr.cwnd(), 1);
    let mut undone = bbr.clone();
    undone.undo();
    assert_eq!(undone.cwnd(), before);
    for acked in [1, 4, 8, 16, 32, 64, 128] {
        now += Duration::from_millis(50);
        bbr.on_ack(&sample(now, acked, prior));
        prior += acked;
        assert!(bbr.cwnd() <= before.max(bbr.target(1000)));
    }
    assert!(bbr.cwnd() >= 200, "{}", bbr.cwnd());
}

#[test]
fn after_idle_time_it_goes_on_at_the_bandwidth() {
    let (mut bbr, prior, now) = settled(0);
    let cwnd = bbr.cwnd();
    let later = now + 30 * SECOND;
    bbr.on_idle_restart(Duration::from_millis(250), 30 * SECOND);
    assert_eq!(bbr.cwnd(), cwnd);
    assert_near(bbr.pacing_rate().unwrap() as f64, 1_980_000.0, 0.001);
    // The round trip was not seen for long, but now it was.
    bbr.on_ack(&sample(later, 10, prior));
    assert!(matches!(bbr.mode, Mode::ProbeBw { .. }), "{:?}", bbr.mode);
}

#[test]
fn phases_are_scattered() {
    let mut seen = [0; 8];
    for i in 0..7_000 {
        match any_phase(Instant::from_nanos(i * 1_000_003)) {
            Mode::ProbeBw { phase, .. } => seen[phase] += 1,
            other => unreachable!("{other:?}"),
        }
    }
    assert_eq!(seen[1], 0);
    for (phase, count) in seen.into_iter().enumerate() {
        assert!(phase == 1 || (600..1_400).contains(&count), "{seen:?}");
    }
}

use super::*;
use crate::tcp::congestion::pipe::Pipe;
use crate::tcp::congestion::{Algorithm, Congestion};

const RTT: Duration = Duration::from_millis(100);

fn sample(now: Instant, acked: u32, rtt: Duration) -> AckSample {
    AckSample {
        now,
        acked,
        in_flight: acked,
        rtt: Some(rtt),
        min_rtt: Some(rtt),
        srtt: Some(rtt),
        mss: 1448,
        rate: None,
        is_cwnd_limited: true,
        in_recovery: false,
    }
}

fn avoiding(cwnd: u32) -> Cubic {
    Cubic::new(Window::with_threshold(cwnd, cwnd))
}

/// Loses something; the window is at the threshold after it.
fn lose(cubic: &mut Cubic, now: Instant) {
    let ssthresh = cubic.ssthresh_after_loss(now);
    cubic.set_cwnd(ssthresh);
}

/// Acknowledges all that a window sends, in ten parts a round trip, for `time`.
fn go_on(cubic: &mut Cubic, now: &mut Instant, time: Duration, rtt: Duration) {
    let end = *now + time;
    let mut sent = 0.0;
    while *now < end {
        *now += rtt / 10;
        sent += f64::from(cubic.cwnd()) / 10.0;
        let whole = sent as u32;
        sent -= f64::from(whole);
        cubic.on_ack(&sample(*now, whole, rtt));
    }
}

fn assert_near(actual: f64, expected: f64, tolerance: f64) {
    assert!(
        (actual - expected).abs() <= tolerance,
        "{actual} is not {expected} +- {tolerance}"
    );
}

#[test]
fn figures_of_the_rfc() {
    assert_near(ALPHA, 0.529, 0.001);
    let mut curve = Curve {
        w_max: 100.0,
        ..Curve::default()
    };
    let epoch = curve.epoch_at(70.0, Instant::ZERO);
    assert_near(epoch.k, 4.217, 0.001);
    assert_near(epoch.w_cubic(0.0), 70.0, 1e-9);
    assert_near(epoch.w_cubic(epoch.k), 100.0, 1e-9);
    assert_near(epoch.w_cubic(2.0 * epoch.k), 130.0, 1e-9);
}

#[test]
fn loss_leaves_seven_tenths() {
    for (cwnd, left) in [
        (100, 70),
        (10, 7),
        (3, 2),
        (2, 2),
        (1, 2),
        (1_000_000, 700_000),
    ] {
        let mut cubic = avoiding(cwnd);
        assert_eq!(cubic.ssthresh_after_loss(Instant::ZERO), left, "{cwnd}");
        assert_eq!(cubic.cwnd(), cwnd);
        assert_eq!(cubic.ssthresh(), left);
    }
}

#[test]
fn comes_back_along_the_curve() {
    let mut cubic = avoiding(400);
    let mut now = Instant::from_nanos(77);
    lose(&mut cubic, now);
    let k = (120.0_f64 / 0.4).cbrt();
    let mut seconds = 0.0;
    for _ in 0..10 {
        go_on(&mut cubic, &mut now, Duration::from_secs(1), RTT);
        seconds += 1.0;
        let expected = 0.4 * (seconds - k).powi(3) + 400.0;
        // The window is where the curve will be between now and a round trip later.
        assert_near(f64::from(cubic.cwnd()), expected, 0.03 * expected);
    }
}

#[test]
fn grows_by_half_in_a_round_trip_at_most() {
    let mut cubic = avoiding(20);
    let mut now = Instant::ZERO;
    lose(&mut cubic, now);
    let long = Duration::from_secs(20);
    go_on(&mut cubic, &mut now, long, long);
    assert!((20..=22).contains(&cubic.cwnd()), "{}", cubic.cwnd());
}

#[test]
fn is_no_slower_than_reno_over_short_round_trips() {
    let rtt = Duration::from_millis(2);
    let mut cubic = avoiding(100);
    let mut now = Instant::ZERO;
    lose(&mut cubic, now);
    // 30 packets at 0.529 each round trip take 57 of them, then it is one each.
    go_on(&mut cubic, &mut now, rtt * 57, rtt);
    assert_near(f64::from(cubic.cwnd()), 100.0, 2.0);
    go_on(&mut cubic, &mut now, rtt * 40, rtt);
    assert_near(f64::from(cubic.cwnd()), 140.0, 3.0);
}

#[test]
fn who_loses_early_makes_room() {
    let mut cubic = avoiding(100);
    lose(&mut cubic, Instant::ZERO);
    assert_near(cubic.curve.w_max, 100.0, 1e-9);
    cubic.set_cwnd(80);
    lose(&mut cubic, Instant::ZERO);
    assert_near(cubic.curve.w_max, 68.0, 1e-9);
    assert_eq!(cubic.cwnd(), 56);
    cubic.set_cwnd(90);
    lose(&mut cubic, Instant::ZERO);
    assert_near(cubic.curve.w_max, 90.0, 1e-9);
}

#[test]
fn time_without_use_does_not_count() {
    let mut now = Instant::ZERO;
    let mut busy = avoiding(400);
    lose(&mut busy, now);
    go_on(&mut busy, &mut now, Duration::from_secs(3), RTT);
    let mut idle = busy.clone();
    let mut modest = busy.clone();

    go_on(&mut busy, &mut now.clone(), RTT, RTT);
    let mut later = now + Duration::from_secs(60);
    go_on(&mut idle, &mut later, RTT, RTT);
    assert!(
        idle.cwnd() <= busy.cwnd() + 6,
        "{} {}",
        idle.cwnd(),
        busy.cwnd()
    );

    let mut then = now;
    for _ in 0..600 {
        then += RTT;
        modest.on_ack(&AckSample {
            is_cwnd_limited: false,
            ..sample(then, 5, RTT)
        });
    }
    go_on(&mut modest, &mut then, RTT, RTT);
    assert!(
        modest.cwnd() <= busy.cwnd(),
        "{} {}",
        modest.cwnd(),
        busy.cwnd()
    );
}

#[test]
fn searches_where_slow_start_ended_early() {
    let mut cubic = avoiding(100);
    let mut now = Instant::ZERO;
    go_on(&mut cubic, &mut now, RTT, RTT);
    assert_near(f64::from(cubic.cwnd()), 105.0, 1.0);
    // After a loss it is known where the path ends.
    lose(&mut cubic, now);
    let left = cubic.cwnd();
    cubic.curve.w_max = f64::from(left);
    go_on(&mut cubic, &mut now, RTT, RTT);
    assert!(cubic.cwnd() <= left + 1);
}

#[test]
fn a_timeout_forgets_where_the_loss_was() {
    let mut cubic = avoiding(100);
    cubic.ssthresh_after_loss(Instant::ZERO);
    cubic.on_rto(Instant::ZERO);
    assert_eq!((cubic.cwnd(), cubic.ssthresh()), (1, 70));
    let mut now = Instant::ZERO;
    for acked in [1, 2, 4, 8, 16, 32] {
        now += RTT;
        cubic.on_ack(&sample(now, acked, RTT));
    }
    assert_eq!(cubic.cwnd(), 64);
    cubic.on_ack(&sample(now + RTT, 6, RTT));
    assert_eq!(cubic.cwnd(), 70);
    cubic.on_ack(&sample(now + RTT, 1, RTT));
    let epoch = cubic.curve.epoch.unwrap();
    assert_near(epoch.k, 0.0, 1e-9);
    assert_near(epoch.origin, 70.0, 1e-9);
}

#[test]
fn what_was_no_loss_is_taken_back() {
    let mut cubic = avoiding(400);
    let mut now = Instant::ZERO;
    lose(&mut cubic, now);
    go_on(&mut cubic, &mut now, Duration::from_secs(2), RTT);
    let mut undisturbed = cubic.clone();
    lose(&mut cubic, now);
    cubic.on_rto(now);
    cubic.undo();
    assert_eq!(cubic.cwnd(), undisturbed.cwnd());
    go_on(&mut undisturbed, &mut now.clone(), RTT * 10, RTT);
    go_on(&mut cubic, &mut now, RTT * 10, RTT);
    assert_eq!(cubic.cwnd(), undisturbed.cwnd());
}

/// RFC 9438 section 5.1, equation 5, and Reno's average where that is more (equation 6).
#[test]
fn average_windows_under_regular_loss() {
    for (rtt_ms, one_in, expected) in [
        (100, 10_000, 187.0),
        (100, 100_000, 1054.0),
        (100, 1_000, 38.0),
        (10, 10_000, 120.0),
    ] {
        let rtt = Duration::from_millis(rtt_ms);
        let mut cubic = avoiding(expected as u32);
        let mut now = Instant::ZERO;
        let (mut windows, mut rounds, mut since) = (0.0, 0.0, 0);
        for loss in 0.. {
            while since < one_in {
                now += rtt;
                let cwnd = cubic.cwnd();
                since += cwnd;
                cubic.on_ack(&sample(now, cwnd, rtt));
                if loss >= 5 {
                    windows += f64::from(cwnd);
                    rounds += 1.0;
                }
            }
            since -= one_in;
            lose(&mut cubic, now);
            if loss == 25 {
                break;
            }
        }
        assert_near(windows / rounds, expected, 0.1 * expected);
    }
}

#[test]
fn slow_start_ends_without_loss_where_the_path_is_full() {
    // 80 Mbit/s and 40 ms: 276 packets.
    let pipe = Pipe {
        rate: 10_000_000,
        delay: Duration::from_millis(40),
        queue: 400,
        lose_one_in: None,
    };
    let cubic = Congestion::new(Algorithm::Cubic, 10, Instant::ZERO);
    let mut flow = pipe.flow(cubic);
    flow.run(Duration::from_millis(400));
    assert_eq!(flow.lost, 0);
    assert!(
        flow.congestion.ssthresh() < 400,
        "{}",
        flow.congestion.ssthresh()
    );
    flow.measure(Duration::from_secs(20));
    assert!(flow.throughput() > 9_500_000, "{}", flow.throughput());
    assert!(flow.lost > 0);
}

#[test]
fn keeps_a_path_busy_that_has_half_its_product_as_queue() {
    for delay in [5, 50, 200] {
        let delay = Duration::from_millis(delay);
        let rate = 5_000_000;
        let product = (rate as f64 * delay.as_secs_f64() / 1500.0) as usize;
        let pipe = Pipe {
            rate,
            delay,
            queue: product / 2 + 10,
            lose_one_in: None,
        };
        let mut flow = pipe.flow(Congestion::new(Algorithm::Cubic, 10, Instant::ZERO));
        flow.run(Duration::from_secs(10));
        flow.measure(Duration::from_secs(30));
        assert!(
            flow.throughput() > 4_700_000,
            "{delay:?} {}",
            flow.throughput()
        );
    }
}

use super::*;

#[test]
fn fairness_is_one_if_all_have_the_same() {
    for (shares, index) in [
        (&[5, 5, 5, 5][..], 1.0),
        (&[8, 0, 0, 0], 0.25),
        (&[1, 3], 0.8),
        (&[7], 1.0),
        (&[], 0.0),
        (&[0, 0], 0.0),
    ] {
        assert!((fairness(shares) - index).abs() < 1e-9, "{shares:?}");
    }
}

#[test]
fn columns_stand_apart() {
    let setting = Setting {
        traffic: Traffic::Forward,
        workers: 2,
        rps: true,
        rfs: false,
        role: Role::Control,
    };
    let measured = Measured {
        series: Series {
            stages: vec![1_234_567.0],
            ..Series::default()
        },
        total: Round {
            by_flow: vec![1, 2],
            sent: 3,
            handled: 3,
            crossed: 3,
            at_home: Some((3, 3)),
        },
    };
    for row in rows(Family::V4, &[setting], &[measured]) {
        assert_eq!(row.columns().split_whitespace().count(), 15);
    }
}

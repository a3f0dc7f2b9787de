//! The rules by their formulas, and the steered one in weather.

use super::*;

fn whole(elapsed_ns: u64) -> Observed {
    Observed { elapsed_ns, bytes: 1000, came_bytes: 1000, reached_bytes: 1000, late_bytes: 0 }
}

#[test]
fn the_published_rules_are_those_of_the_papers() {
    let mut profile = Profile::new(Rule::OptiNic, &[900_000, 1_000_000, 1_100_000]).unwrap();
    assert_eq!(profile.timeout_ns(), 1_300_000, "1.25 x 1 ms + 50 us");
    // 800 of 1000 bytes in 1 ms: 1.25 ms. The median of three, a fifth of it.
    let partial = Observed { elapsed_ns: 1_000_000, came_bytes: 800, ..whole(0) };
    let proposals = [1_000_000, 9_000_000].map(|t| profile.proposal(&whole(t)));
    let third = profile.proposal(&partial);
    assert_eq!(third.estimate_ns, 1_250_000.0);
    profile.update(&[proposals[1], third, proposals[0]]);
    assert_eq!(profile.timeout_ns(), 1_290_000);

    let mut profile = Profile::new(Rule::Celeris, &[1_000_000]).unwrap();
    let first = profile.proposal(&whole(2_000_000));
    assert_eq!(first.estimate_ns, 2_000_000.0);
    assert_eq!(profile.proposal(&whole(1_000_000)).estimate_ns, 1_800_000.0);
    // Nothing came: four times the first, and a fifth of that.
    let nothing = Observed { came_bytes: 0, ..whole(1_300_000) };
    let expected = 0.2 * 4.0 * 1_300_000.0 + 0.8 * 1_800_000.0;
    assert!((profile.proposal(&nothing).estimate_ns - expected).abs() < 1e-3);
    profile.update(&[first]);
    assert_eq!(profile.timeout_ns(), 2_000_000);

    let mut profile = Profile::new(Rule::CelerisDeviation, &[8, 10, 12]).unwrap();
    assert_eq!(profile.timeout_ns(), 11);
    let proposal = profile.proposal(&whole(99));
    profile.update(&[proposal]);
    assert_eq!(profile.timeout_ns(), 11);
    assert_eq!(Profile::new(Rule::OptiNic, &[]), None);
}

#[test]
fn holes_do_not_lengthen_the_steered_estimate() {
    let mut profile = Profile::new(Rule::default(), &[1_000_000]).unwrap();
    // A tenth was lost on the path, all others had come.
    let holes = Observed { came_bytes: 900, ..whole(1_000_000) };
    assert_eq!(profile.proposal(&holes), Proposal { estimate_ns: 1_000_000.0, late: 0.0 });
    let late = Observed { came_bytes: 700, reached_bytes: 800, late_bytes: 200, ..holes };
    assert_eq!(profile.proposal(&late), Proposal { estimate_ns: 1_250_000.0, late: 0.2 });
    let slow = Proposal { estimate_ns: 9_000_000.0, late: 0.5 };
    let usual = Proposal { estimate_ns: 1_000_000.0, late: 0.0 };
    (0..1000).for_each(|_| profile.update(&[usual, usual, slow]));
    assert!((3_990_000..4_001_000).contains(&profile.timeout_ns()), "the cap");
    (0..50_000).for_each(|_| profile.update(&[usual; 3]));
    let usual_ns = profile.timeout_ns();
    assert!((1_300_000..1_310_000).contains(&usual_ns), "the floor and the slack: {usual_ns}");
    let before = profile.clone();
    profile.update(&[]);
    assert_eq!(profile, before);
}

#[test]
fn profiles_of_other_groups_operations_and_sizes_do_not_mix() {
    let mut profiles = Profiles::new(Rule::default());
    let key = Key::new(1, 2, 1000);
    profiles.warm_up(key, 1000, &[1_000_000]);
    assert_eq!(profiles.timeout_ns(key, 1000), Some(1_300_000));
    assert_eq!(profiles.timeout_ns(Key::new(1, 2, 512), 500), Some(650_000), "of one class");
    for other in [Key::new(1, 2, 1024), Key::new(1, 3, 1000), Key::new(2, 2, 1000)] {
        assert_eq!(profiles.timeout_ns(other, 1000), None);
    }
    // A ring moves more bytes than an operation has.
    let half = Observed { bytes: 750, came_bytes: 750, reached_bytes: 750, ..whole(500_000) };
    let proposal = profiles.proposal(key, 500, &half).unwrap();
    assert_eq!(proposal.estimate_ns, 1_000_000.0, "for the size of the profile");
    profiles.update(key, &[proposal]);
    assert_eq!(profiles.timeout_ns(key, 1000), Some(1_300_000), "the floor");
    assert_eq!(Key::new(0, 0, 0).size_class, 0);
}

#[test]
fn the_published_rules_cut_half_of_the_nodes_off() {
    for rule in [Rule::OptiNic, Rule::Celeris] {
        let outcome = simulate(rule, 1.0, Weather::Calm, 8, 2000, 1);
        assert!((0.3..0.6).contains(&outcome.cut), "{rule:?} {outcome:?}");
    }
}

#[test]
fn what_is_late_by_the_steered_rule_meets_its_target() {
    for weather in Weather::ALL {
        for seed in 0..4 {
            let outcome = simulate(Rule::default(), 1.0, weather, 8, 20_000, seed);
            assert!(outcome.late < 2.0 * TARGET_LATE, "{weather:?} {outcome:?}");
        }
    }
}

#[test]
fn the_steered_rule_is_about_as_fast_as_others_would_be_had_one_known_their_factor() {
    // The factors are found with hindsight, for the same weather. Where times are heavy-tailed a fixed
    // timeout has the lowest p99 for what it loses, and a rule that learns it pays for that.
    for (weather, rule, most) in [
        (Weather::Calm, Rule::OptiNic, 1.0),
        (Weather::Calm, Rule::Celeris, 1.0),
        (Weather::Calm, Rule::CelerisDeviation, 1.02),
        (Weather::Drifting, Rule::OptiNic, 1.0),
        (Weather::Drifting, Rule::Celeris, 1.005),
        (Weather::Bursty, Rule::OptiNic, 1.12),
        (Weather::Bursty, Rule::Celeris, 1.12),
        (Weather::Bursty, Rule::CelerisDeviation, 1.12),
        (Weather::Changing, Rule::OptiNic, 1.05),
        (Weather::Changing, Rule::CelerisDeviation, 1.06),
    ] {
        let ours = simulate(Rule::default(), 1.0, weather, 8, 20_000, 1);
        let (scale, theirs) = scaled_to_loss(rule, ours.late, weather, 8, 20_000, 1);
        let text = format!("{weather:?} {rule:?} x {scale}: {ours:?} {theirs:?}");
        assert!(ours.p99_ms <= most * theirs.p99_ms, "{text}");
        assert!(ours.mean_ms <= 1.01 * theirs.mean_ms, "{text}");
    }
}

#[test]
#[ignore = "prints a table"]
fn print_the_table() {
    println!("{}", table(8, 20_000, 1));
}

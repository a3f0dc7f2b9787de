//! `model`, `plan` and `figures` as a user runs them.

use serde_json::Value;
use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lacuna")).args(args).output().expect("the binary runs")
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn json(line: &str) -> Value {
    let output = run(&[&words(line)[..], &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(text.lines().count(), 1);
    serde_json::from_str(&text).expect("one object")
}

fn assert_near(value: &Value, expected: f64) {
    let actual = value.as_f64().expect("a number");
    assert!((actual / expected - 1.0).abs() < 1e-8, "{actual} is not {expected}");
}

#[test]
fn model_answers_with_the_fields_it_promises() {
    // Expected values: lacuna-model/tests/fixtures, an independent evaluation.
    let link = "--rate 400gbit --rtt 25ms --loss 1e-2 --size 128MiB --chunk 4KiB";
    let sr = json(&format!("model --mode sr {link}"));
    let fields: Vec<&str> = sr.as_object().expect("an object").keys().map(String::as_str).collect();
    let mut promised = [
        "chunks",
        "ideal_s",
        "mean_s",
        "p50_s",
        "p99_s",
        "p999_s",
        "p_fallback",
        "mean_paper_formula_s",
    ];
    promised.sort_unstable();
    let mut sorted = fields.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, promised);
    assert_eq!(sr["chunks"], 32_768);
    assert_near(&sr["ideal_s"], 32_768.0 * 8.192e-8 + 0.025);
    assert!(sr["p_fallback"].is_null());

    let link = "--rate 400gbit --rtt 25ms --loss 1e-3 --size 128MiB";
    let ec = json(&format!("model --mode ec {link} --code xor --k 32 --m 8 --beta 1 --rto-rtts 3"));
    assert_near(&ec["p_fallback"], 0.078_503_860_102_108_15);
    assert!(ec["mean_paper_formula_s"].as_f64() > ec["mean_s"].as_f64());
}

#[test]
fn model_meets_what_the_demo_measures() {
    let path = "--rate 1gbit --rtt 25ms --loss 1e-3 --size 64MiB --headers --wire-time";
    for (rto_rtts, measured_s) in [(1, 0.584), (3, 0.624)] {
        let answer = json(&format!("model --mode sr --rto-rtts {rto_rtts} {path}"));
        let mean_s = answer["mean_s"].as_f64().expect("a number");
        assert!((mean_s / measured_s - 1.0).abs() < 0.1, "{mean_s}");
    }
}

#[test]
fn model_repairs_a_submessage_while_later_ones_are_sent_if_asked_to() {
    // Measured: docs/model-against-transport.md.
    let path = "--rate 1gbit --rtt 25ms --loss 1e-2 --loss-per packet --chunk 4KiB --mtu 4096 \
                --size 8MiB --headers --wire-time --rto-rtts 1";
    let mean_s = |more: &str| {
        let answer = json(&format!("model --mode ec --code xor --k 32 --m 8 {path} {more}"));
        answer["mean_s"].as_f64().expect("a number")
    };
    assert!((mean_s("--streamed") / 0.1122 - 1.0).abs() < 0.02);
    assert!(mean_s("--beta 0") > 1.08 * 0.1122);
}

#[test]
fn model_prints_the_draws_interval_beside_the_exact_value() {
    let answer = json(
        "model --mode sr --rate 1gbit --rtt 10ms --loss 1e-2 --size 1MiB --trials 5000 --seed 3",
    );
    let drawn = &answer["monte_carlo"];
    assert_eq!(drawn["trials"], 5000);
    let bound = |index: usize| drawn["mean_interval_s"][index].as_f64().expect("a number");
    let mean_s = answer["mean_s"].as_f64().expect("a number");
    assert!(bound(0) <= mean_s && mean_s <= bound(1), "{answer}");
}

#[test]
fn model_says_what_a_deadline_leaves_out() {
    let answer = json(
        "model --mode best-effort --deadline 1s --rate 1gbit --rtt 10ms --loss 1e-2 --size 1MiB",
    );
    assert_near(&answer["missing"]["mean"], 0.01);
    let output =
        run(&words("model --mode best-effort --rate 1gbit --rtt 10ms --loss 0 --size 1MiB"));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn model_says_how_probable_it_is_that_a_message_is_in_time() {
    // 1024 chunks of 32.768 us: the last is there 12.5 ms after 33.55 ms.
    let link = "--rate 1gbit --rtt 25ms --loss 1e-3 --size 4MiB --rto-rtts 1";
    let complete = |mode: &str, deadline: &str| {
        let answer = json(&format!("model --mode {mode} {link} --deadline {deadline}"));
        let by = &answer["by_deadline"];
        assert!(by["assumed"].as_str().expect("a sentence").contains("acknowledgements"), "{by}");
        by["p_complete"].as_f64().expect("a probability")
    };
    for mode in ["sr", "ec", "auto"] {
        let chances = ["40ms", "50ms", "80ms", "1s"].map(|deadline| complete(mode, deadline));
        assert!(chances.is_sorted(), "{mode}: {chances:?}");
        assert!(chances[0] < 1e-9 && chances[3] > 0.999_999, "{mode}: {chances:?}");
    }
    // Of best effort, nothing comes later: all or not.
    let all = 0.999f64.powi(1024);
    assert!((complete("best-effort", "50ms") - all).abs() < 1e-9);
    let bounded = json(&format!("model --mode bounded {link} --deadline 50ms"));
    assert!(
        (bounded["by_deadline"]["arrived_share"].as_f64().expect("a share") - 0.999).abs() < 1e-9
    );
    let output = run(&words(&format!("model --mode sr {link} --deadline 50ms")));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("by 50.0000 ms  complete with 0."), "{text}");
    assert!(text.contains("assumed        the time counts from the first byte sent"), "{text}");
}

#[test]
fn plan_says_of_each_mode_how_probable_it_is_that_a_message_is_in_time() {
    let question = "plan --rate 1gbit --rtt 25ms --loss 1e-3 --size 4MiB --deadline 60ms";
    let answer = json(question);
    let by = &answer["by_deadline"];
    assert_eq!(by["deadline_s"], 0.06);
    assert!((by["bounded"]["arrived_share"].as_f64().expect("a share") - 0.999).abs() < 1e-9);
    let candidates = answer["candidates"].as_array().expect("modes");
    for candidate in candidates {
        let chance = candidate["p_in_time"].as_f64().expect("a probability");
        assert!((0.0..=1.0).contains(&chance), "{candidate}");
    }
    // The same as the model says of one of them.
    let sr = candidates.iter().find(|one| one["mode"] == "sr" && one["chunk_bytes"] == 4096);
    let model = json(
        "model --mode sr --rate 1gbit --rtt 25ms --loss 1e-3 --loss-per packet --size 4MiB --rto-rtts 1 --headers \
         --wire-time --deadline 60ms",
    );
    let expected = model["by_deadline"]["p_complete"].as_f64().expect("a probability");
    assert_near(&sr.expect("selective repeat")["p_in_time"], expected);
    let output = run(&words(question));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    for part in ["by 60", "P(in time)", "without repairs (mode bounded) 99.9", "assumed: the time"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let without = json("plan --rate 1gbit --rtt 25ms --loss 1e-3 --size 4MiB");
    assert!(
        without.get("by_deadline").is_none() && without["candidates"][0].get("p_in_time").is_none()
    );
}

#[test]
fn nonsense_is_answered_with_the_argument_and_its_range() {
    for (change, parts) in [
        (("--loss", "1"), ["--loss", "less than 1"]),
        (("--loss", "-0.1"), ["--loss", "0 or more"]),
        (("--rtt", "-25ms"), ["--rtt", "at least 0"]),
        (("--rtt", "25"), ["--rtt", "ms"]),
        (("--rate", "0gbit"), ["--rate", "more than zero"]),
        (("--rate", "400GB"), ["--rate", "bit"]),
        (("--size", "5parsec"), ["--size", "KiB"]),
        (("--size", "0"), ["--size", "at least 1"]),
        (("--chunk", "0"), ["--chunk", "at least 1"]),
        (("--mtu", "1"), ["--mtu", "between 64 and"]),
        (("--mtu", "1e18"), ["--mtu", "between 64 and"]),
        (("--k", "70000"), ["k is 70000", "1 to 65536 - m"]),
        (("--k", "0"), ["k is 0", "1 to"]),
        (("--m", "0"), ["m is 0", "1 to"]),
        (("--beta", "-1"), ["--beta", "at least 0"]),
        (("--rto-rtts", "-3"), ["--rto-rtts", "at least 0"]),
        (("--burst", "0.5"), ["burst is 0.5", "at least 1"]),
        (("--correlation", "1.5"), ["correlation is 1.5", "below 1"]),
    ] {
        let mut args = words("model --mode ec");
        for (name, value) in
            [("--rate", "400gbit"), ("--rtt", "25ms"), ("--loss", "1e-3"), ("--size", "128MiB")]
        {
            if name != change.0 {
                args.extend([name, value]);
            }
        }
        args.extend([change.0, change.1]);
        let output = run(&args);
        assert_eq!(output.status.code(), Some(2), "{change:?}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!text.contains("panicked"), "{text}");
        for part in parts {
            assert!(text.contains(part), "{change:?}: {text}");
        }
    }
}

#[test]
fn plan_recommends_says_why_and_where_it_flips() {
    let plan = json("plan --rate 400gbit --rtt 25ms --loss 1e-4 --size 128MiB --objective p99.9");
    assert_eq!(plan["matters"], true);
    let choice = &plan["fixed"];
    assert!(choice["mode"].as_str().expect("a mode").starts_with("ec:"), "{choice}");
    assert!(choice["k"].as_u64() > Some(0) && choice["m"].as_u64() > Some(0));
    assert!(choice["fto_s"].as_f64() > choice["rto_s"].as_f64());
    assert_eq!(choice["window_bytes"], 1_250_000_000);
    assert!(plan["reason"].as_str().expect("a sentence").contains("25.0 ms"));
    assert!(!plan["flips"].as_array().expect("flips").is_empty());
    for candidate in plan["candidates"].as_array().expect("candidates") {
        for field in ["mean_s", "p50_s", "p99_s", "p999_s"] {
            assert!(candidate[field].as_f64() > Some(0.027), "{candidate}");
        }
    }
    let plan = json("plan --rate 1gbit --rtt 100us --loss 1e-6 --size 1GiB --objective mean");
    assert_eq!(plan["matters"], false);
    assert_eq!(plan["fixed"]["mode"], "sr");
    let output = run(&words("plan --rate 1gbit --rtt 100us --loss 1e-6 --size 1GiB"));
    assert!(String::from_utf8_lossy(&output.stdout).contains("does not matter"));
}

#[test]
fn plan_has_a_line_for_the_default_mode() {
    let path = "--rate 1gbit --rtt 25ms --loss 1e-3 --size 8MiB --objective p99";
    let plan = json(&format!("plan {path}"));
    let candidates = plan["candidates"].as_array().expect("candidates");
    let of = |mode: &str| {
        let found = candidates.iter().find(|candidate| candidate["mode"] == mode);
        found.unwrap_or_else(|| panic!("{mode}: {plan}"))
    };
    let p99_s = |mode: &str| of(mode)["p99_s"].as_f64().expect("a number");
    // Its parity spares the round trip that repeating takes, and is less than that of a code.
    assert!(p99_s("auto") < p99_s("sr") * 0.85, "{plan}");
    assert!(of("auto")["parity_share"].as_f64() > Some(0.0));
    assert!(of("auto")["parity_share"].as_f64() < of("ec:mds:32:2")["parity_share"].as_f64());
    assert_eq!(plan["recommended"]["mode"], "auto");
    let auto = &plan["auto"];
    assert!(auto["parity"][0].as_u64() >= Some(1) && auto["parity"][1].as_u64() <= Some(16));
    assert!(auto["tail_packets"].as_u64() > Some(700), "{auto}");
    assert!(auto["worse_than_fixed"].as_f64() < Some(0.02), "{auto}");
    let output = run(&words(&format!("plan {path}")));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("take auto, the default: "), "{text}");
    assert!(text.contains("by p99, the best fixed mode takes "), "{text}");
    // A first message's size and a path's length decide, too: nothing to repair, nothing sent.
    let plan = json("plan --rate 1gbit --rtt 100us --loss 1e-3 --size 8MiB");
    assert_eq!(plan["auto"]["parity"], serde_json::json!([0, 0]));
}

#[test]
fn plan_says_what_to_put_below_a_reliable_connection() {
    let path = "--rate 1gbit --rtt 40ms --mtu 1024 --size 1MiB --objective mean";
    let plan = json(&format!("plan {path} --loss 1e-2"));
    let connection = &plan["connection"];
    let number = |of: &Value| of.as_f64().expect("a number");
    let (r, c) = (number(&connection["r"]), number(&connection["c"]));
    assert_eq!(connection["code"], "mds");
    assert_eq!(connection["shim"], format!("lowar:mds:{r}:{c}"));
    assert_eq!(connection["window_packets"], 4682);
    let [with, without] = ["with", "without"].map(|side| &connection[side]);
    assert!(number(&with["mean_s"]) * 5.0 < number(&without["mean_s"]), "{connection}");
    assert!(number(&with["goodput"]) > 0.85 && number(&without["goodput"]) < 0.03, "{connection}");
    assert!(connection["better"].is_string());
    let output = run(&words(&format!("plan {path} --loss 1e-2")));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    for part in
        ["below a reliable connection take lowar:mds:", "back to back keep 9", "on the core"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let near = json("plan --rate 1gbit --rtt 100us --loss 1e-6 --size 1GiB --objective mean");
    assert!(near["connection"]["shim"].is_null());
    assert_eq!(near["connection"]["better"], "either");
}

#[test]
fn model_and_plan_say_the_same_of_the_default_mode() {
    let path = "--rate 1gbit --rtt 25ms --loss 1e-2 --size 8MiB";
    let model = json(&format!("model --mode auto --headers {path}"));
    let plan = json(&format!("plan {path}"));
    let candidates = plan["candidates"].as_array().expect("candidates");
    let auto = candidates.iter().find(|candidate| candidate["mode"] == "auto").expect("a line");
    for field in ["mean_s", "p50_s", "p99_s", "p999_s"] {
        assert_near(&model[field], auto[field].as_f64().expect("a number"));
    }
    assert_eq!(model["tail"]["parity"], plan["auto"]["parity"][0]);
    assert_eq!(model["tail"]["packets"], plan["auto"]["tail_packets"]);
    let output = run(&words(&format!("model --mode auto {path} --trials 5")));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--trials"));
}

#[test]
fn model_shortens_a_code_that_is_longer_than_the_message_as_the_transport_does() {
    // Five chunks of 32 + 8 are one submessage of 5 + 2.
    let path = "--rate 1gbit --rtt 25ms --loss 1e-2 --size 20KiB";
    let long = json(&format!("model --mode ec {path} --k 32 --m 8 --streamed"));
    assert_eq!(long["chunks"], 5);
    let code = serde_json::json!({"k": 5, "m": 2, "is_shortened": true});
    assert_eq!(long["code"], code);
    assert_near(&long["p50_s"], 0.025 + 7.0 * 4096.0 * 8e-9);
    let own = json(&format!("model --mode ec {path} --k 5 --m 2 --streamed"));
    assert_eq!((&long["mean_s"], &long["p999_s"]), (&own["mean_s"], &own["p999_s"]));
    assert_eq!(own["code"]["is_shortened"], false);
    // XOR groups too, and without --streamed.
    let xor = json(&format!("model --mode ec --code xor {path}"));
    assert_eq!(xor["code"], code);
    let output = run(&words(&format!("model --mode ec {path}")));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("5 data and 2 parity, the whole message"), "{text}");
}

#[test]
fn plan_reads_a_measured_path_and_draws() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("path.json");
    std::fs::write(
        &path,
        r#"{"rate_bits_per_s": 1e10, "rtt_s": 0.04, "loss": [1e-5, 1e-3], "mean_burst_packets": 4}"#,
    )
    .expect("written");
    let plot = folder.path().join("plan.svg");
    let (path, plot) = (path.to_str().expect("UTF-8"), plot.to_str().expect("UTF-8"));
    let plan = json(&format!("plan --from {path} --size 1MiB,64MiB --plot {plot}"));
    assert_eq!(plan["recommended"]["window_bytes"], 50_000_000);
    let svg = std::fs::read_to_string(plot).expect("the plot was written");
    assert!(svg.starts_with("<svg") && svg.contains("message size"));
    // The picture says of which path it is and what was chosen, and has a line for the default.
    for part in [
        "Path: 10 Gbit/s, round trip 40 ms, loss 1.0e-5 to 1.0e-3 in bursts of 4.0",
        "packets of 4 KiB",
        "Choice: take ",
        "auto, the default",
        "asked for: 1 MiB, 64 MiB",
    ] {
        assert!(svg.contains(part), "{part}");
    }

    let output = run(&["plan", "--from", path]);
    assert_eq!(output.status.code(), Some(2), "no size");
    std::fs::write(path, r#"{"mtu_bytes": 1}"#).expect("written");
    let output = run(&["plan", "--from", path, "--size", "1MiB"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("between 64 and"), "{output:?}");
    std::fs::write(path, "[1, 2]").expect("written");
    let output = run(&["plan", "--from", path, "--size", "1MiB"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("path.json"));
}

#[test]
fn a_distance_is_a_round_trip_through_fibre() {
    let by_distance = json("plan --rate 1gbit --distance 1000km --loss 0 --size 1MiB");
    let ideal_s = by_distance["ideal_s"].as_f64().expect("a number");
    let rtt_s = 2000.0 * 1.468 / 299_792.458;
    assert!((ideal_s - rtt_s - 256.0 * 4144.0 * 8e-9).abs() < 1e-9, "{ideal_s}");
}

#[test]
fn figures_are_drawn_with_their_headlines() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().to_str().expect("UTF-8");
    let output = run(&["figures", "--out", out, "--trials", "1000", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let written: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let numbers: Vec<u64> = written.iter().filter_map(|figure| figure["figure"].as_u64()).collect();
    assert_eq!(numbers, [3, 9, 10, 12, 13, 15]);
    for figure in &written {
        let svg = std::fs::read_to_string(figure["svg"].as_str().expect("a path")).expect("drawn");
        assert!(svg.starts_with("<svg") && svg.contains("Paper, ") && svg.contains("Here: "));
        let csv =
            std::fs::read_to_string(figure["csv"].as_str().expect("a path")).expect("written");
        let columns = csv.lines().next().expect("a header").split(',').count();
        assert!(csv.lines().count() > 7);
        assert!(csv.lines().all(|line| line.split(',').count() == columns), "{figure}");
        assert!(!figure["headlines"].as_array().expect("headlines").is_empty());
    }
    let ours = written[1]["headlines"][0]["ours"].as_str().expect("text");
    assert!(ours.contains("6.23x") && ours.contains("9.96x"), "{ours}");
}

#[test]
fn the_figures_agree_on_where_coding_overtakes_repeating_and_on_what_one_loss_takes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().to_str().expect("UTF-8");
    let output = run(&["figures", "3", "12", "--out", out]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let kilometres = |before: &str, after: &str| -> f64 {
        let rest = text.split(before).nth(1).unwrap_or_else(|| panic!("{before}: {text}"));
        rest.split(after).next().and_then(|number| number.parse().ok()).expect("a number")
    };
    // The formulas cross at 2556 km; the time is that of eight gigabytes and a link's length, so four
    // times the rate crosses at a quarter of it.
    let of_3 = kilometres("here:       EC wins from ", " km on\n");
    let of_12 = kilometres("km on at 100 Gbit/s, from ", " km on at 400 Gbit/s");
    assert_eq!(of_3, of_12);
    assert!((of_3 - 2556.0).abs() <= 1.0, "{of_3}");
    assert!((kilometres("here:       from ", " km on at 100 Gbit/s") - 4.0 * of_3).abs() < 4.0);
    // 1e5 chunks of 4 KiB.
    assert!(text.contains("1/P chunks are 390.6") && !text.contains("KiB;"), "{text}");
    let svg = std::fs::read_to_string(folder.path().join("figure-3.svg")).expect("drawn");
    assert!(svg.contains("EC wins from 2556 km on") && svg.contains("1/P chunks, 390.6"));

    let output = run(&["figures", "3", "--out", out, "--chunk", "64KiB"]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("1/P chunks are 6.1 GiB"), "{text}");
}

#[test]
fn figures_say_how_sure_what_they_draw_is() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().to_str().expect("UTF-8");
    let output = run(&["figures", "13", "--out", out, "--trials", "20000"]);
    assert!(output.status.success(), "{output:?}");
    let csv = std::fs::read_to_string(folder.path().join("figure-13.csv")).expect("written");
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().expect("a header");
    let column = |name| names.iter().position(|known| *known == name).expect("a column");
    let mut widest: f64 = 1.0;
    for row in lines {
        let number = |name| row[column(name)].parse::<f64>().expect("a number");
        let (low, value, high) = (number("speedup_low"), number("speedup"), number("speedup_high"));
        assert!(low <= value && value <= high, "{row:?}");
        widest = widest.max(high / low);
        if row[column("sites")] == "2" {
            assert_eq!(low, high, "computed");
        }
    }
    assert!(widest > 1.05, "20,000 trials leave more than one step");
    let svg = std::fs::read_to_string(folder.path().join("figure-13.svg")).expect("drawn");
    assert!(svg.contains("99 % interval, 20000 trials"));
}

#[test]
fn the_chunk_switches_between_the_hypotheses() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().to_str().expect("UTF-8");
    let ours = |more: &str| {
        let output = run(&[&["figures", "10", "--out", out][..], &words(more)].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    assert!(ours("").contains("XOR 7.85e-2 at 1e-3"));
    assert!(ours("--chunk 64KiB").contains("XOR 5.10e-3 at 1e-3"));
    assert!(ours("--chunk 64KiB --loss-per packet").contains("XOR 7.14e-1 at 1e-3"));
    for (number, part) in [("11", "--ec-bench FILE"), ("2", "--probe FILE"), ("14", "one of 2, 3")]
    {
        let output = run(&["figures", number, "--out", out]);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(part), "{output:?}");
    }
}

#[test]
fn a_path_that_loses_much_has_a_plan() {
    let plan = json("plan --rate 10gbit --rtt 25ms --loss 0.4 --size 1MiB");
    let chunks =
        plan["candidates"].as_array().expect("candidates").iter().map(|c| &c["chunk_bytes"]);
    assert!(
        chunks.clone().any(|bytes| bytes == 4096) && chunks.clone().all(|bytes| bytes != 65_536)
    );
}

#[test]
fn what_the_model_says_of_bursts_is_what_it_draws() {
    let path = "--rate 10gbit --rtt 25ms --loss 1e-3 --size 128MiB --loss-per packet --headers";
    let number = |answer: &Value, name: &str| answer[name].as_f64().expect("a number");
    for (code, burst) in [
        ("xor --k 32 --m 8", 8),
        ("xor --k 32 --m 16", 8),
        ("mds --k 32 --m 8", 100),
        ("mds --k 32 --m 16", 1000),
    ] {
        for streamed in ["", "--streamed"] {
            let ec = format!("model --mode ec --code {code} --rto-rtts 1 {path} --burst {burst}");
            let drawn = json(&format!("{ec} --trials 2000 {streamed}"));
            let ratio = number(&drawn, "mean_s") / number(&drawn["monte_carlo"], "mean_s");
            assert!((ratio - 1.0).abs() < 0.01, "{code}, bursts of {burst} {streamed}: {drawn}");
        }
    }
    // A message meets a burst of a thousand once in thirty times, and it takes twenty submessages.
    let ec = format!("model --mode ec --code mds --k 32 --m 16 {path} --burst 1000");
    assert!(number(&json(&ec), "p_fallback") < 0.035);
}

#[test]
fn a_chunk_longer_than_the_message_is_as_long_as_the_message() {
    let message =
        "model --mode sr --rate 1gbit --rtt 25ms --loss 1e-3 --loss-per packet --size 4KiB";
    let (long, own) = (json(&format!("{message} --chunk 1MiB")), json(message));
    assert_near(&long["ideal_s"], 0.025 + 4096.0 * 8e-9);
    assert_eq!(long["mean_s"], own["mean_s"]);
    assert_near(&json(&message.replace("4KiB", "100"))["ideal_s"], 0.025 + 100.0 * 8e-9);
}

#[test]
fn plan_names_all_that_is_missing_of_the_path() {
    for (given, missing) in [
        ("", &["--rate", "--rtt", "--distance", "--loss", "--from"][..]),
        ("--rate 1gbit --loss 1e-3", &["--rtt", "--from"]),
    ] {
        let output = run(&words(&format!("plan --size 1MiB {given}")));
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(missing.iter().all(|name| text.contains(name)), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert_eq!(text.contains("--rate"), given.is_empty(), "{text}");
    }
}

#[test]
#[cfg(unix)]
fn a_device_that_never_ends_is_no_measurement() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().to_str().expect("UTF-8");
    for command in ["plan --size 1MiB --from", "figures 2 --probe", "figures 11 --ec-bench"] {
        let mut args = words(command);
        args.push("/dev/zero");
        if args[0] == "figures" {
            args.extend(["--out", out]);
        }
        let output = run(&args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("longer than 64 MiB"));
    }
}

//! Programs in C, compiled as users compile them and run against the installed
//! library: the contract's types, all misuse, the semantics, and the examples;
//! under the sanitizers and valgrind where they are installed.

mod common;

use common::{Build, Runner, compile, has, installed, prefix, remove_old, root};
use lacuna::trust::{Token, write_secret};
use lacuna_capi::endpoint::address::lacuna_address;
use lacuna_capi::endpoint::completion::lacuna_completion;
use lacuna_capi::endpoint::datagram::poll::lacuna_datagram_error;
use lacuna_capi::endpoint::datagram::settings::lacuna_datagram_settings;
use lacuna_capi::endpoint::ended::{lacuna_ended, lacuna_receive_options};
use lacuna_capi::endpoint::group::operation::{lacuna_group_missing, lacuna_group_report};
use lacuna_capi::endpoint::group::options::lacuna_group_options;
use lacuna_capi::endpoint::map::lacuna_range;
use lacuna_capi::endpoint::one_sided::lacuna_written;
use lacuna_capi::endpoint::receive::lacuna_received;
use lacuna_capi::endpoint::region::lacuna_region_options;
use lacuna_capi::endpoint::slices::lacuna_slice;
use lacuna_capi::sdr::types::*;
use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

fn test_source(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name)
}

fn example(name: &str) -> PathBuf {
    root().join("examples/c").join(name)
}

const TESTS: [&str; 16] = [
    "descriptors.c",
    "fork.c",
    "contract.c",
    "misuse.c",
    "every_call.c",
    "endpoint_misuse.c",
    "endpoint.c",
    "bounded.c",
    "one_sided.c",
    "completion_queue.c",
    "datagram.c",
    "group.c",
    "workers.c",
    "semantics.c",
    "early.c",
    "token.c",
];
const EXAMPLES: [&str; 7] =
    ["perf.c", "idle.c", "nack.c", "reliable.c", "bounded.c", "collector.c", "all_reduce.c"];

#[test]
fn everything_compiles_as_c11_and_as_cxx17_without_a_warning() {
    remove_old();
    for build in [Build::C11, Build::Cxx17] {
        for name in TESTS {
            compile(&test_source(name), build);
        }
        for name in EXAMPLES {
            compile(&example(name), build);
        }
    }
}

#[test]
fn structs_have_the_layout_that_the_library_uses() {
    let printed = Runner::default().run(&compile(&test_source("contract.c"), Build::C11), &[]);
    let in_c: BTreeMap<&str, (usize, usize)> = printed
        .lines()
        .map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            (words[0], (words[1].parse().unwrap(), words[2].parse().unwrap()))
        })
        .collect();
    let mut seen = 0;
    macro_rules! same {
        ($type:ident: $($field:ident $bytes:literal),*) => {
            assert_eq!(in_c[stringify!($type)].0, size_of::<$type>(), stringify!($type));
            seen += 1;
            $(
                let name = concat!(stringify!($type), ".", stringify!($field));
                assert_eq!(in_c[name], (offset_of!($type, $field), $bytes), "{name}");
                seen += 1;
            )*
        };
    }
    same!(sdr_dev_attr: num_channels 4, log_max_qps 4);
    same!(sdr_qp_attr: bitmap_chunk_size_log_bytes 4, max_in_flight_log_bytes 8,
        max_log_num_msgs 4, mtu 4, send_enable 1, recv_enable 1, rate_limit 4);
    same!(sdr_send_wr: opcode 4, imm_value 4, length 4, lkey 4, local_addr 8, remote_offset 8);
    same!(sdr_send_start_wr: opcode 4, imm_value 4);
    same!(sdr_send_continue_wr: length 4, local_addr 8, lkey 4, remote_offset 8);
    same!(sdr_recv_wr: max_length 4, lkey 4, address 8);
    same!(sdr_send_status: flags 4);
    same!(lacuna_received: length 8, chunks_done 4, is_complete 1);
    same!(lacuna_receive_options: deadline_us 8, grace_us 8, missing 1);
    same!(lacuna_ended: bytes 8, last_ago_ns 8, reason 4, is_complete 1);
    same!(lacuna_range: length 8);
    same!(lacuna_region_options: rights 4, is_exclusive 1);
    same!(lacuna_written: bytes 8, key 4, is_complete 1);
    same!(lacuna_completion: map 8, result 4, is_silent 1, peer 8, missed 4, is_solicited 1);
    same!(lacuna_address: scope 4, port 2);
    same!(lacuna_slice: memory 8, length 8);
    same!(lacuna_datagram_settings: completions 8, silence_ms 8, port 2, multicast_loop 1,
        workers 4, open_max 8);
    same!(lacuna_datagram_error: number 4, reason 4, is_told 1);
    same!(lacuna_group_options: budget_us 8, budget 1, divisor 1);
    same!(lacuna_group_report: budget_ns 8, straggler_rank 4, straggler_phase 4);
    same!(lacuna_group_missing: count 8, rank 4);
    assert_eq!(seen, in_c.len(), "every line was compared");
}

/// Worker threads or none: the calls must not tell the difference.
fn both_kinds_of_progress() -> [Runner; 2] {
    ["0", "2"].map(|workers| Runner {
        environment: vec![("LACUNA_SDR_WORKERS", workers.to_owned())],
        ..Runner::default()
    })
}

#[test]
fn misuse_is_an_error_and_never_a_crash() {
    for build in [Build::Sanitized, Build::Cxx17] {
        let program = compile(&test_source("misuse.c"), build);
        for runner in both_kinds_of_progress() {
            assert!(runner.run(&program, &[]).ends_with("all misuse answered\n"));
        }
    }
    let program = compile(&test_source("endpoint_misuse.c"), Build::Sanitized);
    assert!(Runner::default().run(&program, &[]).ends_with("all misuse answered\n"));
}

#[test]
fn the_sdr_calls_keep_their_promises_on_every_datapath() {
    let program = compile(&test_source("semantics.c"), Build::Sanitized);
    for runner in both_kinds_of_progress() {
        for device in ["udp:127.0.0.1", "udp:::1", "mem"] {
            assert_eq!(runner.run(&program, &[device]), "all promises kept\n", "{device}");
        }
    }
}

/// With a token that this makes.
fn with_a_token(runner: Runner) -> Runner {
    let token = Token::generate().unwrap();
    // Of no other test that runs at the same time.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let file = installed().join(format!("token-{number}"));
    write_secret(&file, &token.to_text()).unwrap();
    let mut environment = runner.environment.clone();
    environment.push(("LACUNA_TOKEN_FILE", file.to_string_lossy().into_owned()));
    Runner { environment, ..runner }
}

#[test]
fn with_a_token_the_sdr_calls_keep_their_promises_encrypted() {
    let program = compile(&test_source("semantics.c"), Build::Sanitized);
    for runner in both_kinds_of_progress().map(with_a_token) {
        for device in ["udp:127.0.0.1", "mem"] {
            assert_eq!(runner.run(&program, &[device]), "all promises kept\n", "{device}");
        }
    }
}

#[test]
fn an_end_with_a_token_and_one_without_refuse_each_others_infos() {
    let program = compile(&test_source("token.c"), Build::Sanitized);
    let printed = with_a_token(Runner::default()).run(&program, &["udp:127.0.0.1"]);
    assert_eq!(printed, "each was refused\n");
}

#[test]
fn connections_work_from_c() {
    let program = compile(&test_source("endpoint.c"), Build::Sanitized);
    assert_eq!(Runner::default().run(&program, &[]), "done\n");
    let program = compile(&test_source("endpoint.c"), Build::Static);
    assert_eq!(Runner::default().run(&program, &[]), "done\n");
}

#[test]
fn receives_end_in_time_and_say_what_came_from_c() {
    let program = compile(&test_source("bounded.c"), Build::Sanitized);
    for progress in ["threads", "manual"] {
        assert_eq!(Runner::default().run(&program, &[progress]), "every gap was told\n");
    }
}

#[test]
fn peers_write_and_read_regions_from_c() {
    let program = compile(&test_source("one_sided.c"), Build::Sanitized);
    for progress in ["threads", "manual"] {
        assert_eq!(Runner::default().run(&program, &[progress]), "every key kept its promise\n");
    }
}

#[test]
fn operations_complete_into_queues_from_c() {
    let program = compile(&test_source("completion_queue.c"), Build::Sanitized);
    for progress in ["threads", "manual"] {
        assert_eq!(Runner::default().run(&program, &[progress]), "every completion came\n");
    }
}

#[test]
fn datagram_queue_pairs_work_from_c() {
    let program = compile(&test_source("datagram.c"), Build::Sanitized);
    for progress in ["threads", "manual"] {
        let printed = Runner::default().run(&program, &[progress]);
        assert!(printed.starts_with("every datagram was told\n"), "{printed}");
    }
}

#[test]
fn groups_compute_from_c() {
    for build in [Build::Sanitized, Build::Cxx17] {
        let program = compile(&test_source("group.c"), build);
        assert_eq!(Runner::default().run(&program, &[]), "every rank agreed\n");
    }
}

#[test]
fn processes_that_the_example_starts_sum_their_vectors() {
    let program = compile(&example("all_reduce.c"), Build::C11);
    for ranks in ["2", "4"] {
        let printed = Runner::default().run(&program, &["--ranks", ranks, "--count", "100001"]);
        let expected = format!("{ranks} ranks: every sum of 100001 floats is right");
        assert!(printed.contains(&expected), "{printed}");
    }
}

#[test]
fn sender_threads_are_as_many_as_the_environment_says() {
    let program = compile(&test_source("workers.c"), Build::C11);
    for (name, value, threads) in [
        ("SDR_DPA_TX_NUM_WORKERS", "3", "3"),
        ("SDR_DPA_TX_NUM_WORKERS", "190", "4"),
        ("LACUNA_SDR_WORKERS", "2", "2"),
        ("LACUNA_SDR_WORKERS", "0", "0"),
    ] {
        let environment = vec![(name, value.to_owned())];
        let runner = Runner { environment, ..Runner::default() };
        assert_eq!(runner.run(&program, &[threads]).trim(), threads, "{name}={value}");
    }
}

#[test]
fn a_lack_of_descriptors_is_named() {
    // The sanitizers open files of their own.
    let program = compile(&test_source("descriptors.c"), Build::C11);
    for runner in both_kinds_of_progress() {
        assert_eq!(runner.run(&program, &[]), "each lack was named\n");
    }
}

#[test]
fn nothing_is_lost_on_a_path_without_loss() {
    let program = compile(&example("perf.c"), Build::C11);
    for mut runner in both_kinds_of_progress() {
        runner.environment.push(("SDR_DPA_RX_PROFILE_STATS_REPORT", "1".to_owned()));
        let client =
            ["client", "127.0.0.1", "--port", "PORT", "--messages", "40", "--in-flight", "32"];
        let (report, _) = runner.run_pair(&program, &["server", "--port", "0"], &client);
        assert!(report.contains("liblacuna: 0 packets lost"), "{report}");
        assert_eq!(report.matches(" 0 duplicates, 0 discarded").count(), 8, "{report}");
    }
}

#[test]
fn a_scheme_of_ones_own_repairs_every_gap() {
    for build in [Build::Sanitized, Build::C11] {
        let program = compile(&example("nack.c"), build);
        let client = ["sender", "127.0.0.1", "--port", "PORT", "--messages", "4", "--loss", "30"];
        let (received, sent) =
            Runner::default().run_pair(&program, &["receiver", "--port", "0"], &client);
        assert!(received.contains("received 4 messages, every byte checked"), "{received}");
        assert!(!sent.contains(" 0 chunks again"), "{sent}");
    }
}

#[test]
fn the_reliable_example_delivers() {
    let program = compile(&example("reliable.c"), Build::Sanitized);
    let (received, sent) = Runner::default().run_pair(
        &program,
        &["server", "127.0.0.1:0"],
        &["client", "127.0.0.1:PORT"],
    );
    assert!(received.contains("received 20 messages, every byte checked"), "{received}");
    assert!(sent.contains("\"messages\":20"), "{sent}");
}

#[test]
fn the_bounded_example_takes_what_comes_in_time() {
    let program = compile(&example("bounded.c"), Build::Sanitized);
    let (received, sent) = Runner::default().run_pair(
        &program,
        &["server", "127.0.0.1:0"],
        &["client", "127.0.0.1:PORT"],
    );
    assert!(received.contains("received 8 messages"), "{received}");
    assert!(!received.contains(" 0 with gaps"), "a part was left out: {received}");
    assert!(received.contains("were written at 4096"), "{received}");
    assert!(sent.ends_with("the peer has it all\n"), "{sent}");
}

#[test]
fn a_collector_counts_every_message_of_ten_thousand_clients() {
    let program = compile(&example("collector.c"), Build::C11);
    let printed = Runner::default().run(&program, &["10000", "1"]);
    assert!(
        printed.starts_with("10000 clients: 10000 samples, 10000 states, 0 missed\n"),
        "{printed}"
    );
    assert!(printed.contains("\"messages_whole\": 20000,"), "{printed}");
    let program = compile(&example("collector.c"), Build::Sanitized);
    let printed = Runner::default().run(&program, &["200", "10"]);
    assert!(printed.starts_with("200 clients: 2000 samples, 2000 states, 0 missed\n"), "{printed}");
}

#[test]
fn calls_with_nothing_to_do_say_so() {
    let program = compile(&example("idle.c"), Build::C11);
    for runner in both_kinds_of_progress() {
        for device in ["udp:127.0.0.1", "mem"] {
            let printed = runner.run(&program, &["--device", device, "--calls", "500"]);
            assert_eq!(printed.matches(" ns\n").count(), 7, "{printed}");
        }
    }
}

#[test]
fn the_examples_need_cc_and_pkg_config_alone() {
    if !has("pkg-config") || !has("make") {
        eprintln!("not run: no pkg-config or no make");
        return;
    }
    let folder = installed().join("examples");
    std::fs::create_dir_all(&folder).unwrap();
    for entry in std::fs::read_dir(root().join("examples/c")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "c" || kind == "h")
            || path.ends_with("Makefile")
        {
            std::fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
        }
    }
    let lib = prefix().join("lib");
    let output = Command::new("make")
        .arg("-C")
        .arg(&folder)
        .arg(format!("PKG_CONFIG_PATH={}", lib.join("pkgconfig").display()))
        .arg(format!("RPATH={}", lib.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (received, _) = Runner::default().run_pair(
        &folder.join("nack"),
        &["receiver", "--port", "0"],
        &["sender", "127.0.0.1", "--port", "PORT", "--messages", "2"],
    );
    assert!(received.contains("received 2 messages"), "{received}");
}

#[test]
fn valgrind_finds_nothing_to_complain_about() {
    if !has("valgrind") {
        eprintln!("not run: no valgrind");
        return;
    }
    let runner = Runner { valgrind: true, ..Runner::default() };
    for name in [
        "misuse.c",
        "endpoint_misuse.c",
        "endpoint.c",
        "bounded.c",
        "one_sided.c",
        "completion_queue.c",
        "datagram.c",
        "group.c",
    ] {
        runner.run(&compile(&test_source(name), Build::C11), &[]);
    }
    let nack = compile(&example("nack.c"), Build::C11);
    let client = ["sender", "127.0.0.1", "--port", "PORT", "--messages", "1"];
    runner.run_pair(&nack, &["receiver", "--port", "0"], &client);
    let perf = compile(&example("perf.c"), Build::C11);
    let client = [
        "client",
        "127.0.0.1",
        "--port",
        "PORT",
        "--size",
        "100000",
        "--messages",
        "20",
        "--in-flight",
        "4",
        "--channels",
        "2",
        "--chunk",
        "8192",
        "--mtu",
        "1024",
        "--check",
    ];
    runner.run_pair(&perf, &["server", "--port", "0"], &client);
}

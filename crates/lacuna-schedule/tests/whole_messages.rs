//! Messages that a carrier carries whole: one after the other between two ranks, each in its time.

use lacuna_schedule::element::{Element, Op};
use lacuna_schedule::run::{Job, Label, Settings, Time, Vectors};
use lacuna_schedule::schedule::{Algorithm, Collective, Request, plan};
use lacuna_schedule::simulated::{Carried, Config, Fate, Group, Network};
use std::cell::RefCell;
use std::rc::Rc;

const RANKS: usize = 3;

/// Who sent to whom, and how many bytes.
type Log = Rc<RefCell<Vec<(usize, usize, usize)>>>;

fn group(carried: Carried, log: &Log) -> Group {
    let log = log.clone();
    let carrier = move |from, to, bytes| {
        log.borrow_mut().push((from, to, bytes));
        carried
    };
    let config = Config { carrier: Some(Box::new(carrier)), ..Config::reliable(RANKS, 1, 0) };
    let network = Network::new(config, Box::new(|_| Fate::Comes { extra_ns: 0 }));
    let settings = Settings { is_pipelined: false, ..Settings::default() };
    Group::new(network, settings)
}

fn start(group: &mut Group) {
    let collective = Collective::AllReduce { count: 6 };
    for rank in 0..RANKS {
        let request = Request {
            collective: &collective,
            algorithm: &Algorithm::Ring,
            rank,
            ranks: RANKS,
            is_average: false,
            is_in_place: false,
        };
        let table = plan(&request).expect("a ring");
        let label = Label { name: String::new(), elements: 6, element: Element::I32, op: Op::Sum };
        let input = (0..6).flat_map(|i: i32| (i + rank as i32).to_le_bytes()).collect();
        let buffers = Box::new(Vectors { input, output: vec![0; 24] });
        group.start(rank, Job { table, label, buffers, time: Time::Unlimited, losses: Vec::new() });
    }
}

#[test]
fn an_operation_takes_the_times_of_its_messages_and_gives_its_result() {
    let log = Log::default();
    let mut group = group(Carried { received_ns: 70, next_ns: 20 }, &log);
    start(&mut group);
    assert!(group.run(u64::MAX));
    let sums: Vec<u8> = (0..6).flat_map(|i: i32| (3 * i + 3).to_le_bytes()).collect();
    for rank in 0..RANKS {
        let (time_ns, finished) = group.take(rank).remove(0);
        assert_eq!((time_ns, finished.buffers.output()), (4 * 70, &sums[..]));
    }
    // Each rank sends four messages of two elements to the next one.
    let mut log = log.take();
    log.sort_unstable();
    let expected = (0..RANKS).flat_map(|rank| [(rank, (rank + 1) % RANKS, 8); 4]);
    assert_eq!(log, expected.collect::<Vec<_>>());
}

#[test]
fn a_pairs_next_message_waits_until_it_may_begin() {
    // Two operations at once: the second one's messages go behind the first one's last, which begins at 210.
    let time_ns = |next_ns| {
        let mut group = group(Carried { received_ns: 70, next_ns }, &Log::default());
        start(&mut group);
        start(&mut group);
        assert!(group.run(u64::MAX));
        (0..RANKS).flat_map(|rank| group.take(rank)).map(|(time_ns, _)| time_ns).max()
    };
    assert_eq!(time_ns(0), Some(210 + 4 * 70), "right behind it");
    assert_eq!(time_ns(70), Some(280 + 4 * 70), "when it is there");
}

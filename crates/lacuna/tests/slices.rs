//! Messages out of parts of regions and into parts of regions, and regions over memory that is lent, over
//! real sockets.

use lacuna::{
    Connection, ConnectionConfig, Context, ContextConfig, Listener, Missing, Reason, RecvOptions,
    Region, RegionOptions, Stride, Target,
};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Ends what would hang; no test asserts a time.
const LONG: Duration = Duration::from_secs(20);

fn context() -> Context {
    let config = ContextConfig { bind: LOCALHOST.into(), ..ContextConfig::default() };
    Context::new(config).unwrap()
}

fn connected(here: &Context, there: &Context, mode: &str) -> (Connection, Connection) {
    let config = ConnectionConfig {
        mode: mode.parse().unwrap(),
        one_sided: true,
        deadline: LONG,
        ..ConnectionConfig::default()
    };
    let plain = ConnectionConfig::default();
    let listener = Listener::bind(there, (LOCALHOST, 0).into(), plain).unwrap();
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(move || listener.accept().unwrap());
        let connected = Connection::connect(here, address, config).unwrap();
        (connected, accepting.join().unwrap())
    })
}

fn all(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len() as usize];
    region.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_matrix_is_transposed_on_its_way_without_a_copy_of_the_application() {
    const SIDE: u64 = 100;
    const ITEM: u64 = 8;
    let (here, there) = (context(), context());
    let (a, b) = connected(&here, &there, "auto");
    let item = |row: u64, column: u64| (row * 1000 + column).to_le_bytes();
    let cells = || (0..SIDE).flat_map(|row| (0..SIDE).map(move |column| (row, column)));
    let bytes: Vec<u8> = cells().flat_map(|(row, column)| item(row, column)).collect();
    let from = here.register(bytes, RegionOptions::default()).unwrap();
    let into = there.register(vec![0; 80_000], RegionOptions::default()).unwrap();
    let column =
        |column| Stride { start: column * ITEM, bytes: ITEM, stride: SIDE * ITEM, count: SIDE };
    let columns = Region::list((0..SIDE).map(|number| (&from, column(number)))).unwrap();
    let receive = b.post_recv(into.slice(0..80_000).unwrap()).unwrap();
    a.start_send(columns, None).unwrap().wait().unwrap();
    receive.wait(LONG).unwrap();
    assert_eq!(receive.chunk(0), None, "others may write it, so it cannot be borrowed");
    let done = receive.complete();
    assert_eq!((done.reason, done.bytes, done.buffer.len()), (Reason::Whole, 80_000, 0));
    let expected: Vec<u8> = cells().flat_map(|(row, column)| item(column, row)).collect();
    assert!(all(&into) == expected);
    // Nothing holds the memory any more.
    assert!(into.into_vec().unwrap() == expected);
}

#[test]
fn what_a_region_held_stays_in_the_gaps_unless_zeros_are_asked_for() {
    let (here, there) = (context(), context());
    let (_a, b) = connected(&here, &there, "bounded");
    let region = there.register(vec![7; 1000], RegionOptions::default()).unwrap();
    let soon = RecvOptions::within(Duration::from_millis(1));
    let done = b.post_recv_with(region.slice(0..500).unwrap(), soon).unwrap().finish();
    assert_eq!(done.reason, Reason::Deadline);
    assert!(all(&region).iter().all(|byte| *byte == 7));
    let zeros = RecvOptions { missing: Some(Missing::Zero), ..soon };
    b.post_recv_with(region.slice(100..300).unwrap(), zeros).unwrap().finish();
    let bytes = all(&region);
    assert!(bytes[..100].iter().chain(&bytes[300..]).all(|byte| *byte == 7));
    assert!(bytes[100..300].iter().all(|byte| *byte == 0));
}

#[test]
fn lent_memory_is_written_by_a_peer_within_its_scope_only() {
    let (here, there) = (context(), context());
    let (a, b) = connected(&here, &there, "auto");
    let mut tensor = vec![0; 100_000];
    let options = RegionOptions::default();
    let lent = there.lend_region(&mut tensor, options, |region| {
        let to = Target { key: region.key(), address: 0 };
        a.write_to_with_immediate(to, &[5; 100_000], 1, LONG).unwrap();
        b.wait_written(LONG).unwrap();
        to
    });
    let to = lent.unwrap();
    assert!(tensor.iter().all(|byte| *byte == 5));
    assert!(a.write_to(to, &[6; 10], LONG).is_err(), "the key is of no use any more");
    assert!(tensor.iter().all(|byte| *byte == 5));
}

//! One suite of behaviours for every datapath.
//!
//! `conformance/behaviours.rs` says what a datapath does, `conformance/world.rs` how a test talks
//! to one. The tables below multiply the two: a new datapath is a line in the second, a new
//! behaviour a line in the first.

#[path = "conformance/behaviours.rs"]
mod behaviours;
#[path = "conformance/world.rs"]
mod world;

use lacuna_datapath::{Datapath, Impair, Impairment, Offload, Pcap};
use world::World;

/// The behaviours: a test each, for the world that an expression makes.
macro_rules! behave {
    ($name:ident, $world:expr) => {
        behave!($name, $world;
            a_datapath_says_what_it_is
            packets_arrive_exactly_as_sent
            packets_of_every_size_arrive
            parts_of_a_packet_may_be_empty
            mixed_sizes_keep_order_and_boundaries
            a_full_burst_arrives
            an_empty_burst_is_nothing
            a_packet_too_large_is_refused_and_disturbs_no_other
            nothing_to_receive_is_nothing
            a_full_receiver_drops_whole_packets_and_no_others_suffer
            packets_to_nobody_disturb_no_others
            one_end_serves_many
            many_ends_reach_one
            an_arrival_wakes_a_waiter
            the_event_source_goes_quiet_when_all_is_taken
            a_waker_wakes_a_waiter_with_sources
            a_batch_tells_the_address_that_it_came_to
            an_end_for_any_address_tells_which_one_was_meant
            trailers_become_icrcs_where_a_datapath_says_so
            the_bytes_of_a_batch_may_be_written_to
            the_first_free_port_of_a_range_is_taken
        );
    };
    ($name:ident, $world:expr; $($behaviour:ident)*) => {
        mod $name {
            use super::*;
            $(
                #[test]
                fn $behaviour() {
                    if let Some(world) = $world {
                        behaviours::$behaviour(&world);
                    }
                }
            )*
        }
    };
}

behave!(udp, World::udp(Offload::Auto, false, boxed));
behave!(udp_v6, World::udp(Offload::Auto, true, boxed));
behave!(udp_plain, World::udp(Offload::Plain, false, boxed));
behave!(udp_plain_v6, World::udp(Offload::Plain, true, boxed));
behave!(mem, World::mem(false, boxed));
behave!(mem_v6, World::mem(true, boxed));
behave!(impair_over_mem, World::mem(false, transparent));
behave!(impair_over_udp, World::udp(Offload::Auto, false, transparent));
behave!(delay_over_mem, World::mem(false, delayed));
behave!(delay_over_udp, World::udp(Offload::Auto, false, delayed));
behave!(pcap_over_mem, World::mem(false, captured));
behave!(pcap_over_udp_v6, World::udp(Offload::Auto, true, captured));
behave!(
    impair_over_pcap_over_udp,
    World::udp(Offload::Auto, false, |datapath| { delayed(captured(datapath)) })
);

fn boxed(datapath: Box<dyn Datapath>) -> Box<dyn Datapath> {
    datapath
}

fn transparent(datapath: Box<dyn Datapath>) -> Box<dyn Datapath> {
    Box::new(Impair::new(datapath, Impairment::default(), 1))
}

/// A link that changes nothing but the time, so that every packet passes through its schedule.
fn delayed(datapath: Box<dyn Datapath>) -> Box<dyn Datapath> {
    let impairment = Impairment { delay_ns: 20_000, jitter_ns: 10_000, ..Impairment::default() };
    Box::new(Impair::new(datapath, impairment, 1))
}

fn captured(datapath: Box<dyn Datapath>) -> Box<dyn Datapath> {
    Box::new(Pcap::new(datapath, world::discarding_writer()))
}

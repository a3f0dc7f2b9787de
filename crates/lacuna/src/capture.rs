//! Packet captures of a context.

use crate::context::Wrap;
use lacuna_datapath::{Pcap, PcapWriter};
use std::sync::Arc;

/// A [`crate::ContextConfig::wrap`] that writes every packet to `writer`. The capture goes around
/// `inner`, if given, so it shows the packets as this end sends and receives them, before and after
/// what `inner` does to them. One writer serves any number of contexts.
pub fn captured(inner: Option<Wrap>, writer: PcapWriter) -> Wrap {
    Arc::new(move |channel, datapath| {
        let datapath = match &inner {
            Some(inner) => inner(channel, datapath),
            None => datapath,
        };
        Box::new(Pcap::new(datapath, writer.clone()))
    })
}

//! Captures of a context's packets, for whoever has a setting for them.

use crate::context::Wrap;
use lacuna_datapath::{Pcap, PcapWriter};
use std::sync::Arc;

/// What makes a context write every packet to `writer`, for [`crate::ContextConfig::wrap`]. It goes
/// around `inner`, if that is there: the file then shows what this end sends and gets, whatever
/// `inner` does to it. One writer serves any number of contexts.
pub fn captured(inner: Option<Wrap>, writer: PcapWriter) -> Wrap {
    Arc::new(move |channel, datapath| {
        let datapath = match &inner {
            Some(inner) => inner(channel, datapath),
            None => datapath,
        };
        Box::new(Pcap::new(datapath, writer.clone()))
    })
}

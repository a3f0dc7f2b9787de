//! Congestion controllers: one list of operations for all, and flows over a simulated bottleneck.

mod bottleneck;
mod conformance;
mod flows;
mod shares;
mod starts;
mod tcp;

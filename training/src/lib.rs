//! Training with gradients of which packets are lost, and decoding with activations of which packets are: what OptiNIC
//! (figures 2 to 4) and Celeris (figure 1) say of it, measured on small models and data that are made from a seed.
//!
//! | module | contents |
//! |---|---|
//! | `task`, `model`, `parameters` | data, models, and their parameters as flat vectors |
//! | `exchange` | exact, lossy and encoded averages over ranks |
//! | `trainer`, `optimizer` | data-parallel training of one model, or of one per rank |
//! | `network` | ranks in threads, with real groups over emulated paths |
//! | `parallel`, `sharded` | the same training by ranks at the same time, over such a network: replicas, or shards (ZeRO-3) |
//! | `inference` | decoding by ranks that have a part of the model each, over such a network |
//! | `statistics` | means and quantiles, and means of paired differences with intervals |
//! | `random` | random numbers by a seed |

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod exchange;
pub mod inference;
pub mod model;
pub mod network;
pub mod optimizer;
pub mod parallel;
pub mod parameters;
pub mod random;
pub mod sharded;
pub mod statistics;
pub mod task;
pub mod trainer;

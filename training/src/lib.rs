//! Training with gradients of which packets are lost: what OptiNIC (figures 2 and 3) and Celeris (figure 1)
//! say of it, measured on small models and data that are made from a seed.
//!
//! | module | contents |
//! |---|---|
//! | `task`, `model`, `parameters` | data, models, and their parameters as flat vectors |
//! | `exchange` | exact, lossy and encoded averages over ranks |
//! | `trainer`, `optimizer` | data-parallel training of one model, or of one per rank |
//! | `statistics` | means of paired differences, with intervals |
//! | `random` | random numbers by a seed |

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod exchange;
pub mod model;
pub mod optimizer;
pub mod parameters;
pub mod random;
pub mod statistics;
pub mod task;
pub mod trainer;

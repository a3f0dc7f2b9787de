//! `lacuna-train`: trains small models over exchanges that lose packets.

mod figure2;
mod train;

use clap::{Parser, Subcommand};

// Tensors of megabytes come and go with every step. The system's allocator returns each to the kernel, which
// took 40 % of the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "lacuna-train", about, version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train one model, or one per seed.
    Train(train::Arguments),
    /// Accuracy against loss, with and without the transform.
    Figure2(figure2::Arguments),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Train(arguments) => train::run(&arguments),
        Command::Figure2(arguments) => figure2::run(&arguments),
    }
}

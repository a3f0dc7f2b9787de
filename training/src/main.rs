//! `lacuna-train`: trains small models, and decodes with them, over exchanges and networks that lose packets.

mod decode;
mod figure2;
mod figure3;
mod path;
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
    /// Time to an accuracy over an emulated path, by what is done about losses.
    Figure3(figure3::Arguments),
    /// Decoding by ranks with a part of the model each: characters per second, and the time to the first one.
    Decode(decode::Arguments),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Train(arguments) => train::run(&arguments),
        Command::Figure2(arguments) => figure2::run(&arguments),
        Command::Figure3(arguments) => figure3::run(&arguments),
        Command::Decode(arguments) => decode::run(&arguments),
    }
}

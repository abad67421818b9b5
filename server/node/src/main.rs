//! The `tribunal` binary: it parses the command line, runs one command and says on failure what to do.

mod auth;
mod commands;
mod commit;
mod config;
mod descriptors;
mod node;
mod plugins;
mod readers;
mod service;
mod stores;
mod telemetry;

use std::process::ExitCode;

use clap::Parser;

/// Transactions are allocated by one thread and freed by another, which the system's allocator is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = commands::cli::Cli::parse();
    match commands::run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tribunal: {error}");
            ExitCode::FAILURE
        }
    }
}

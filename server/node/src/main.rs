//! The `tribunal` binary: it parses the command line, runs one command and says on failure what to do.

mod access;
mod artefacts;
mod cli;
mod commands;
mod compiled_files;
mod config;
mod consumers;
mod credentials;
mod declared;
mod distribution;
mod embedded_memory;
mod epoch_cache;
mod feeds;
mod gathering;
mod image_places;
mod imaging;
mod jwt;
mod keys;
mod log_thread;
mod metrics;
mod modules;
mod node;
mod plugin_admin;
mod plugin_check;
mod plugin_flags;
mod plugin_health;
mod plugins;
mod policies;
mod public_key;
mod published;
mod push_control;
mod pushes;
mod reach;
mod readers;
mod recovery;
mod sequencer;
mod service;
mod shards;
mod signatures;
mod slots;
mod sql_storages;
mod stats;
mod stores;
mod telemetry;
mod waiting;
mod watchers;
mod webhooks;

use std::process::ExitCode;

use clap::Parser;

/// Transactions are allocated by one thread and freed by another, which the system's allocator is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match commands::run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tribunal: {error}");
            ExitCode::FAILURE
        }
    }
}

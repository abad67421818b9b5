//! The `tribunal` binary: parses the command line, runs one command, and prints the remedy on failure.

mod assembly;
mod auth;
mod cluster;
mod commands;
mod commit;
mod config;
mod config_errors;
mod config_files;
mod configured;
mod data_dir;
mod data_disk;
mod descriptors;
mod ignored_settings;
mod listening;
mod memory;
mod named_file;
mod node;
mod node_status;
mod panics;
mod planted;
mod plugins;
mod readers;
mod ready;
mod service;
mod signals;
mod stop_deadline;
mod stores;
mod supervisor;
mod telemetry;
mod unready_log;

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: memory::Allocator = memory::Allocator(mimalloc::MiMalloc);

fn main() -> ExitCode {
    let cli = commands::cli::Cli::parse();
    let Some(command) = cli.command else {
        commands::first_steps();
        return ExitCode::SUCCESS;
    };
    match commands::run(command) {
        Ok(code) => code,
        Err(error) => {
            commands::last_line::write_reason(&error);
            ExitCode::FAILURE
        }
    }
}

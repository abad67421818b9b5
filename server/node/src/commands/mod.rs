//! The commands, one file each.

pub mod cli;
mod cluster_adopt;
mod cluster_answers;
mod cluster_files;
mod cluster_members;
mod cluster_recover;
mod cluster_status;
mod cluster_up;
mod config;
pub mod config_help;
mod consumer;
mod demo_bank;
mod demo_tpcc;
mod key;
pub(crate) mod last_line;
mod log;
mod log_lines;
pub(crate) mod output;
mod plugin;
pub mod plugin_flags;
mod serve;
mod store;
pub mod target;
mod webhook;

use std::process::ExitCode;

use clap::CommandFactory;

use self::output::out;
use crate::commands::cli::{
    Cli, ClusterCommand, Command, ConfigCommand, ConsumerCommand, Demo, KeyCommand, LogCommand, StoreCommand,
    WebhookCommand,
};

/// Prints the next steps, for a command line without a command.
pub fn first_steps() {
    let program = crate::commands::cli::program();
    out!("Tribunal {}: concurrency control as a service.\n", env!("CARGO_PKG_VERSION"));
    out!("See it work:             {program} demo bank");
    out!("Start a node, for tests: {program} dev");
    out!("Run one for real:        {program} config print >tribunal.toml");
    out!("                         {program} serve --config tribunal.toml\n");
    out!("A running node documents its API at http://127.0.0.1:7420/docs. All commands: {program} --help");
}

/// Runs a command, and returns the process's exit code.
///
/// # Errors
/// For the operator: the failure, and the remedy.
pub fn run(command: Command) -> Result<ExitCode, String> {
    let done = match command {
        Command::Dev(flags) => serve::dev(flags),
        Command::Cluster(ClusterCommand::Up(flags)) => cluster_up::run(&flags),
        Command::Cluster(ClusterCommand::Certificates(flags)) => cluster_files::run(&flags),
        Command::Cluster(ClusterCommand::Adopt(flags)) => cluster_adopt::run(&flags),
        Command::Cluster(ClusterCommand::Add(flags)) => cluster_members::add(&flags),
        Command::Cluster(ClusterCommand::Remove(flags)) => cluster_members::remove(&flags),
        Command::Cluster(ClusterCommand::Drain(flags)) => cluster_members::drain(&flags),
        Command::Cluster(ClusterCommand::Resume(flags)) => cluster_members::resume(&flags),
        Command::Cluster(ClusterCommand::Recover { config, accept_loss }) => cluster_recover::run(&config, accept_loss),
        Command::Cluster(ClusterCommand::Status(flags)) => return cluster_status::run(&flags),
        Command::Serve { config } => serve::serve(&config),
        Command::Demo(Demo::Bank(flags)) => demo_bank::run(&flags),
        Command::Log(LogCommand::Tail { target, store, after, follow, consumer }) => {
            log::tail(&target, &log::Tail { store, after, follow, consumer })
        }
        Command::Consumer(ConsumerCommand::Ls { target }) => consumer::ls(&target),
        Command::Consumer(ConsumerCommand::Rm { target, name }) => consumer::rm(&target, &name),
        Command::Webhook(WebhookCommand::Set(flags)) => webhook::set(&flags),
        Command::Webhook(WebhookCommand::Show { target, store }) => webhook::show(&target, &store),
        Command::Webhook(WebhookCommand::Rm { target, store }) => webhook::rm(&target, &store),
        Command::Demo(Demo::Tpcc(flags)) => demo_tpcc::run(&flags),
        Command::Log(LogCommand::Salvage { data, accept_loss, rebuild }) => log::salvage(&data, accept_loss, rebuild),
        Command::Store(StoreCommand::Ls { target, namespace, all_namespaces }) => {
            store::ls(&target, namespace.as_deref(), all_namespaces)
        }
        Command::Store(StoreCommand::Declare(flags)) => store::declare(&flags),
        Command::Store(StoreCommand::Show { target, namespace, store }) => {
            store::info(&target, namespace.as_deref(), &store)
        }
        Command::Store(StoreCommand::Get { target, key, store }) => store::get(&target, &store, &key),
        Command::Store(StoreCommand::Resume { target, store }) => store::resume(&target, &store),
        Command::Store(StoreCommand::Skip { target, store, lsn }) => store::skip(&target, &store, lsn),
        Command::Store(StoreCommand::Skips { target, store }) => store::skips(&target, &store),
        Command::Store(StoreCommand::Attach { target, store, loaded_lsn }) => {
            store::attach(&target, &store, loaded_lsn)
        }
        Command::Plugin(command) => plugin::run(command),
        Command::CheckPlugin { file, world, config } => {
            crate::plugins::plugin_check::run(&file, world.as_deref(), &config)
        }
        Command::Key(KeyCommand::Create { target, name, namespace, roles, expires_in }) => {
            key::create(&target, name, namespace, &roles, expires_in)
        }
        Command::Key(KeyCommand::Ls { target }) => key::ls(&target),
        Command::Key(KeyCommand::Revoke { target, id, force }) => key::revoke(&target, &id, force),
        Command::Config(ConfigCommand::Check { config, json }) => return config::check(config.as_deref(), json),
        Command::Config(ConfigCommand::Print { config, json }) => config::print(config.as_deref(), json),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "tribunal", &mut script);
            output::write(format_args!("{}", String::from_utf8_lossy(&script)));
            Ok(())
        }
    };
    done.map(|()| ExitCode::SUCCESS)
}

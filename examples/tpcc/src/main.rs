//! `tpcc`: the engine against a running Tribunal and PostgreSQL. `tribunal demo tpcc` starts both itself.

use std::process::ExitCode;

use clap::Parser;
use tribunal_tpcc::{Database, Options};

#[derive(Parser)]
#[command(version, about = "TPC-C's NewOrder and Payment over PostgreSQL, by way of Tribunal")]
struct Cli {
    /// Tribunal's URL.
    #[arg(long, default_value = "http://127.0.0.1:7420")]
    url: String,
    /// PostgreSQL: `postgres://role:password@host:port/database`. Tribunal must know the role's password, by
    /// `push.credentials` of its configuration.
    #[arg(long, env = "TPCC_POSTGRES", hide_env_values = true)]
    postgres: Database,
    #[command(flatten)]
    options: Options,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Cli { url, postgres, options } = Cli::parse();
    match tribunal_tpcc::run(&options, &url, &postgres).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tpcc: {error}");
            ExitCode::FAILURE
        }
    }
}

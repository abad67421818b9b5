//! `kv-proxy`: ACID transactions for a Redis that has none, through Tribunal.
//!
//! `serve` runs one proxy: it reads rows with their versions straight from Redis, buffers writes and requests a verdict
//! from Tribunal; Tribunal writes to Redis. `story` starts everything on loopback and tries hard to break it.

mod api;
mod proxy;
mod session;
mod storage;
mod story;

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

#[derive(Parser)]
#[command(version, about = "ACID transactions for Redis, by way of Tribunal")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs one proxy.
    Serve(Serve),
    /// Starts Redis, Tribunal and two proxies, runs workloads, sets Redis back, and compares Redis with the log.
    Story(story::Story),
}

#[derive(Args)]
struct Serve {
    /// Redis to read from, `host:port`.
    #[arg(long, default_value = "127.0.0.1:6379")]
    redis: String,
    /// Tribunal's URL.
    #[arg(long, default_value = "http://127.0.0.1:7420")]
    tribunal: String,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1:7440")]
    listen: SocketAddr,
    /// Name of the store at Tribunal.
    #[arg(long, default_value = "redis")]
    store: String,
    /// Prefix of the store's keys in Redis, as declared at Tribunal.
    #[arg(long, default_value = "kv:")]
    prefix: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(serve) => serve_until_stopped(serve).await,
        Command::Story(story) => story::tell(story).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kv-proxy: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve_until_stopped(serve: Serve) -> Result<(), Box<dyn std::error::Error>> {
    let options = tribunal_client::ClientOptions::from_env();
    // Many users share this client. One user's Begin need not wait until the other users' commits are applied.
    let options = tribunal_client::ClientOptions { read_own_writes: false, ..options };
    let client = tribunal_client::Client::with_options(&serve.tribunal, options)?;
    let storage = storage::Storage::new(&serve.redis, &serve.prefix)?;
    let proxy = proxy::Proxy::new(client, storage, &serve.store);
    let listener = tokio::net::TcpListener::bind(serve.listen).await?;
    println!("kv-proxy listens on http://{}", listener.local_addr()?);
    axum::serve(listener, proxy::routes(proxy)).with_graceful_shutdown(stopped()).await?;
    Ok(())
}

/// Completes when the process is asked to end: Ctrl-C or SIGTERM.
async fn stopped() {
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            // Without a handler, the signal itself ends the process.
            std::future::pending::<()>().await;
        }
    };
    let terminated = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = interrupted => {}
        () = terminated => {}
    }
}

//! `tribunal demo tpcc`: starts PostgreSQL and a node, and runs the engine of `examples/tpcc` on both.

use tribunal_tpcc::{Database, PostgresServer};

use crate::commands::cli::Tpcc;
use crate::config::Config;
use crate::node::Node;
use crate::stores::credentials::{Credential, Protocol, Secret};

/// Runs the demo.
///
/// # Errors
/// If PostgreSQL or the service is unavailable, or a final check fails.
pub fn run(flags: &Tpcc) -> Result<(), String> {
    let started = match &flags.postgres {
        Some(_) => None,
        None => Some(start_postgres()?),
    };
    let database = match (&flags.postgres, &started) {
        (Some(database), _) => database.clone(),
        (None, Some(server)) => server.url().parse()?,
        (None, None) => unreachable!("a server was started"),
    };
    let embedded = match &flags.url {
        Some(_) => None,
        None => Some(start_node(&database)?),
    };
    let url = match (&flags.url, &embedded) {
        (Some(url), _) => url.clone(),
        (None, Some((node, _))) => format!("http://{}", node.address()),
        (None, None) => unreachable!("a node was started"),
    };
    let runtime = tokio::runtime::Runtime::new().map_err(|error| format!("cannot start threads: {error}"))?;
    let result = runtime.block_on(tribunal_tpcc::run(&flags.options, &url, &database));
    if let Some((node, data)) = embedded {
        node.stop().map_err(|error| error.to_string())?;
        data.close().map_err(|error| format!("cannot remove the demo's data: {error}"))?;
    }
    match result? {
        true => Ok(()),
        false => Err("the tables are not as they must be: this is a defect of tribunal, please report it with this \
                      output"
            .into()),
    }
}

fn start_postgres() -> Result<PostgresServer, String> {
    PostgresServer::start(&["max_connections=120"])
        .map_err(|error| format!("{error}; `--postgres URL` takes one that runs already"))
}

fn start_node(database: &Database) -> Result<(Node, tempfile::TempDir), String> {
    let data = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
    let mut config = Config { listen: ([127, 0, 0, 1], 0).into(), data: data.path().to_owned(), ..Config::load(None)? };
    config.push.credentials.push(Credential {
        endpoint: database.address()?,
        protocol: Protocol::Postgres,
        user: database.user()?.to_owned(),
        password: database.password().map(Secret::new),
        password_file: None,
    });
    let node = Node::start(&config, true).map_err(|error| error.to_string())?;
    Ok((node, data))
}

//! TPC-C's NewOrder and Payment on an engine that reads straight from PostgreSQL and commits through Tribunal.
//!
//! There are no locks: the terminals read rows with their versions, Tribunal decides, and its `postgres` adaptor
//! writes. At the end, TPC-C's consistency conditions are checked in SQL, and the tables are compared with the log.

pub mod audit;
pub mod clock;
pub mod conditions;
pub mod database;
pub mod engine;
pub mod population;
pub mod postgres_server;
pub mod random;
pub mod rows;
pub mod run;
pub mod schema;
pub mod tally;

pub use database::Database;
pub use postgres_server::PostgresServer;
pub use run::run;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// How long the terminals work.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Terminals at work at once, spread over the warehouses.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=80))]
    pub terminals: u32,
    /// Warehouses.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(i32).range(1..=100))]
    pub warehouses: i32,
    /// Items; the specification's database has 100,000.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(i32).range(10..=100_000))]
    pub items: i32,
    /// Customers of each of a warehouse's ten districts; the specification's database has 3,000.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(i32).range(10..=3_000))]
    pub customers: i32,
    /// Leave the run's schema in the database; its name is printed with --json.
    #[arg(long)]
    pub keep: bool,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
}

impl Options {
    fn sizes(&self) -> random::Sizes {
        random::Sizes { warehouses: self.warehouses, items: self.items, customers: self.customers }
    }
}

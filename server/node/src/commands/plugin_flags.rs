//! Flags of `tribunal plugin`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::commands::cli::Target;

/// What to do with a plugin.
#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// Writes the sources of a new plugin, with everything they need to build.
    New(New),
    /// Compiles a plugin to a component that imports nothing.
    Build {
        /// The plugin's folder.
        #[arg(default_value = ".")]
        folder: PathBuf,
    },
    /// Runs the conformance kit on a component, as an upload would.
    Test(Test),
    /// Makes a key that signs plugins: FILE, and the public half in FILE.pub for the service's configuration.
    Keygen {
        /// File to make.
        file: PathBuf,
    },
    /// Uploads a component. The service checks and keeps it; `activate` puts it to work.
    Push(Push),
    /// Fills a slot with a plugin, from an epoch on.
    Activate(Activate),
    /// Returns a slot to what filled it before, or drops an activation that waits for its epoch.
    Rollback {
        /// Which service.
        #[command(flatten)]
        target: Target,
        /// The plugin that fills, or will fill, the slot.
        name: String,
        /// Which slot, if it fills several.
        #[arg(long)]
        slot: Option<String>,
    },
    /// Deletes a plugin, or one version of it. Refused while a slot holds it, or will.
    Rm {
        /// Which service.
        #[command(flatten)]
        target: Target,
        /// The plugin.
        name: String,
        /// SHA-256 of the plugin version to delete; all versions if left out.
        #[arg(long)]
        digest: Option<String>,
    },
    /// Lists what has filled each slot: who changed it, when, and which epochs it decided.
    History {
        /// Which service.
        #[command(flatten)]
        target: Target,
        /// One slot; all if left out.
        #[arg(long)]
        slot: Option<String>,
    },
    /// Lists plugins, and what fills each slot, with its health and cost.
    Ls {
        /// Which service.
        #[command(flatten)]
        target: Target,
    },
}

/// Languages with a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// Rust.
    Rust,
    /// C.
    C,
    /// JavaScript.
    Js,
}

impl Language {
    /// Returns the name in `plugin.toml`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Language::Rust => "rust",
            Language::C => "c",
            Language::Js => "js",
        }
    }
}

/// Examples that `tribunal plugin new` writes instead of the plain template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Example {
    /// A conflict rule in Rust: the transaction whose first attempt is the oldest wins.
    OldestWaiting,
}

/// Flags of `tribunal plugin new`.
#[derive(Debug, Args)]
pub struct New {
    /// conflict-rule, isolation-validator or log-adaptor.
    #[arg(
        long,
        required = false,
        required_unless_present = "example",
        default_value_if("example", "oldest-waiting", "conflict-rule")
    )]
    pub world: String,
    /// Language.
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    pub lang: Language,
    /// A worked example instead of the plain template.
    #[arg(long, value_enum, conflicts_with = "lang")]
    pub example: Option<Example>,
    /// Folder to make; the plugin's name if left out.
    #[arg(long)]
    pub folder: Option<PathBuf>,
    /// Name: lower-case letters, digits and `-`.
    pub name: String,
}

/// Flags of `tribunal plugin test`.
#[derive(Debug, Args)]
pub struct Test {
    /// The component, or the plugin's folder.
    #[arg(default_value = ".")]
    pub path: PathBuf,
    /// Configuration, a JSON object.
    #[arg(long, default_value = "")]
    pub config: String,
    /// Redis to try an adaptor on, `host:port`: records are pushed to it, and pushed again.
    #[arg(long, value_name = "HOST:PORT")]
    pub storage: Option<String>,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `tribunal plugin push`.
#[derive(Debug, Args)]
pub struct Push {
    /// Which service.
    #[command(flatten)]
    pub target: Target,
    /// The component, or the plugin's folder.
    #[arg(default_value = ".")]
    pub path: PathBuf,
    /// Name to upload it under; that of the folder or file if left out.
    #[arg(long)]
    pub name: Option<String>,
    /// Configuration to check it with, a JSON object. Activated with another one, it is checked again.
    #[arg(long, default_value = "")]
    pub config: String,
    /// Sign it with the private key in this PEM file.
    #[arg(long, value_name = "KEYFILE")]
    pub sign: Option<PathBuf>,
}

/// Flags of `tribunal plugin activate`.
#[derive(Debug, Args)]
pub struct Activate {
    /// Which service.
    #[command(flatten)]
    pub target: Target,
    /// The plugin.
    pub name: String,
    /// `rule`, `validator:<level>` or `adaptor:<name>`; may be left out where the plugin's world leaves one choice.
    #[arg(long)]
    pub slot: Option<String>,
    /// SHA-256 of a plugin version; the newest one if left out.
    #[arg(long)]
    pub digest: Option<String>,
    /// First epoch, or `+N` for N epochs from now; the next one if left out. An idle service seals empty epochs up to it.
    #[arg(long, value_name = "EPOCH")]
    pub at_epoch: Option<String>,
    /// Configuration, a JSON object.
    #[arg(long, default_value = "")]
    pub config: String,
}

//! Flags of `tribunal plugin`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::commands::target::Target;

/// What to do with a plugin.
#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// Create the sources of a new plugin, with everything needed to build it.
    New(New),
    /// Compile a plugin to a component without imports.
    Build {
        /// The plugin's folder.
        #[arg(default_value = ".")]
        folder: PathBuf,
    },
    /// Run the conformance kit on a component, as an upload does.
    Test(Test),
    /// Generate a key for signing plugins: FILE, and FILE.pub with the public key for the service's configuration.
    Keygen {
        /// File to create.
        file: PathBuf,
    },
    /// Upload a component. The service checks and stores it; `activate` puts it into a slot.
    Push(Push),
    /// Activate a plugin in a slot, from an epoch on.
    ///
    /// In a cluster, this waits up to 5 s until every node has reported that it has fetched and compiled the plugin, and then
    /// fails with the nodes that have not: start those that are down, and repeat it.
    Activate(Activate),
    /// Return a slot to its previous plugin, or cancel a pending activation.
    Rollback {
        /// Which service.
        #[command(flatten)]
        target: Target,
        /// Name of the plugin that is active or pending in the slot.
        name: String,
        /// The slot, if the plugin is in several.
        #[arg(long)]
        slot: Option<String>,
    },
    /// Take a plugin out of its slot: a rule or validator gives way to the built-in one, an adaptor is removed.
    ///
    /// An adaptor that a store is declared with is not removed. The uploaded versions remain; `rm` deletes them.
    Deactivate {
        /// Which service.
        #[command(flatten)]
        target: Target,
        /// Name of the plugin that is active in the slot.
        name: String,
        /// The slot, if the plugin is in several.
        #[arg(long)]
        slot: Option<String>,
        /// First epoch that the plugin no longer decides, or `+N` for N epochs from now; the default is the next one.
        #[arg(long, value_name = "EPOCH")]
        at_epoch: Option<String>,
    },
    /// Delete a plugin, or one version of it, unless it is active or pending in a slot.
    Rm {
        /// Which service.
        #[command(flatten)]
        target: Target,
        /// Name of the plugin.
        name: String,
        /// SHA-256 of the version to delete, or its first digits, at least 8, as `plugin ls` prints them; the default is all
        /// versions.
        #[arg(long, value_parser = digest_text)]
        digest: Option<String>,
    },
    /// List the activations of each slot: who requested them, when, and which epochs they decided.
    History {
        /// Which service.
        #[command(flatten)]
        target: Target,
        /// The slot; the default is all slots.
        #[arg(long)]
        slot: Option<String>,
    },
    /// List plugins and slots, with the health and cost of the active plugins.
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
    /// What the plugin is: conflict-rule, isolation-validator or log-adaptor.
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
    /// Folder to create; the default is the plugin's name.
    #[arg(long)]
    pub folder: Option<PathBuf>,
    /// Name of the plugin: lower-case letters, digits and `-`.
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
    /// Redis to test an adaptor with, which must be empty: records are pushed to it twice, and stay.
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
    /// Name of the plugin; the default is that of the folder or file.
    #[arg(long)]
    pub name: Option<String>,
    /// Configuration to check the component with, a JSON object. Activating it with another one checks it again.
    #[arg(long, default_value = "")]
    pub config: String,
    /// Sign the component with the private key in this PEM file.
    #[arg(long, value_name = "KEYFILE")]
    pub sign: Option<PathBuf>,
}

/// Flags of `tribunal plugin activate`.
#[derive(Debug, Args)]
pub struct Activate {
    /// Which service.
    #[command(flatten)]
    pub target: Target,
    /// Name of the plugin.
    pub name: String,
    /// `rule`, `validator:<level>` or `adaptor:<name>`; required for a validator.
    #[arg(long)]
    pub slot: Option<String>,
    /// SHA-256 of the version, or its first digits, at least 8, as `plugin ls` prints them; the default is the newest version.
    #[arg(long, value_parser = digest_text)]
    pub digest: Option<String>,
    /// First epoch that the plugin decides, or `+N` for N epochs from now; the default is the next one. An idle service seals
    /// empty epochs to reach it.
    #[arg(long, value_name = "EPOCH")]
    pub at_epoch: Option<String>,
    /// Configuration, a JSON object.
    #[arg(long, default_value = "")]
    pub config: String,
}

/// Number of digits in a digest.
pub const DIGEST_DIGITS: usize = 64;
/// Minimum number of digits that identify a version, if unique.
const PREFIX_DIGITS_MIN: usize = 8;

/// Parses a SHA-256 in hexadecimal, or a prefix of one.
fn digest_text(text: &str) -> Result<String, String> {
    let is = format!(
        "a digest has {DIGEST_DIGITS} hexadecimal digits, of which the first {PREFIX_DIGITS_MIN} are enough; `plugin ls` prints more"
    );
    if let Some(wrong) = text.chars().find(|digit| !digit.is_ascii_hexdigit()) {
        return Err(format!("`{}` is not a hexadecimal digit; {is}", wrong.escape_debug()));
    }
    match text.len() {
        PREFIX_DIGITS_MIN..=DIGEST_DIGITS => Ok(text.to_ascii_lowercase()),
        digits => Err(format!("it has {digits} digits; {is}")),
    }
}

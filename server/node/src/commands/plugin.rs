//! `tribunal plugin`: everything from a template to an active plugin.

mod activation;
mod build;
mod history;
mod progress;
mod remote;
mod storage;
mod template;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tribunal_wasm::{PluginLimits, World};

use crate::commands::output::out;
use crate::commands::plugin_flags::{PluginCommand, Test};
use crate::plugins::plugin_check::{self, CheckError, Found, Rejected};
use crate::plugins::signatures;

/// `plugin.toml`: the manifest in a plugin's folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    name: String,
    world: String,
    lang: String,
}

impl Manifest {
    fn read(folder: &Path) -> Result<Manifest, String> {
        let path = folder.join("plugin.toml");
        let text = std::fs::read_to_string(&path).map_err(|error| {
            format!("{}: {error}; name a folder that `tribunal plugin new` has created", path.display())
        })?;
        toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn world(&self) -> Result<World, String> {
        world(&self.world)
    }

    /// Path of the component.
    fn component(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.wasm", self.name))
    }
}

fn world(name: &str) -> Result<World, String> {
    World::by_name(name)
        .ok_or_else(|| format!("there is no world `{name}`; worlds are {}", World::ALL.map(World::name).join(", ")))
}

/// A component given as a command's argument: a file, or a folder with a manifest.
struct Component {
    path: PathBuf,
    name: String,
    world: Option<World>,
}

impl Component {
    fn at(path: &Path) -> Result<Component, String> {
        if path.is_dir() {
            let manifest = Manifest::read(path)?;
            let component = manifest.component(path);
            if !component.is_file() {
                return Err(format!("{} is not there; run `tribunal plugin build` first", component.display()));
            }
            return Ok(Component { path: component, world: Some(manifest.world()?), name: manifest.name });
        }
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        Ok(Component { path: path.to_owned(), name, world: None })
    }
}

/// Runs a command.
///
/// # Errors
/// A description of the failure, for the operator.
pub fn run(command: PluginCommand) -> Result<(), String> {
    match command {
        PluginCommand::New(flags) => template::write(&flags),
        PluginCommand::Build { folder } => build::build(&folder),
        PluginCommand::Test(flags) => test(&flags),
        PluginCommand::Keygen { file } => keygen(&file),
        PluginCommand::Push(flags) => remote::push(&flags),
        PluginCommand::Activate(flags) => remote::activate(&flags),
        PluginCommand::Rollback { target, name, slot } => remote::roll_back(&target, &name, slot),
        PluginCommand::Deactivate { target, name, slot, at_epoch } => {
            remote::deactivate(&target, &name, slot, at_epoch.as_deref())
        }
        PluginCommand::Rm { target, name, digest } => remote::remove(&target, &name, digest.as_deref()),
        PluginCommand::Ls { target } => remote::ls(&target),
        PluginCommand::History { target, slot } => history::show(&target, slot.as_deref()),
    }
}

/// Generates a key pair, in two new files.
fn keygen(file: &Path) -> Result<(), String> {
    let (private, public) = signatures::generate()?;
    let mut public_file = file.as_os_str().to_owned();
    public_file.push(".pub");
    let public_file = PathBuf::from(public_file);
    if public_file.exists() {
        return Err(format!("{} already exists; nothing was written", public_file.display()));
    }
    for (file, text, mode) in [(file, &private, 0o600), (&public_file, &public, 0o644)] {
        let made = OpenOptions::new().write(true).create_new(true).mode(mode).open(file);
        made.and_then(|mut made| made.write_all(text.as_bytes()))
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    out!("{}: the private key; keep it to yourself", file.display());
    out!("{}: the public key; name it in the service's configuration:\n", public_file.display());
    out!("[[uploads.signers]]\nname = \"me\"\nkey_file = {:?}", public_file.display().to_string());
    Ok(())
}

/// Checks the text of `--config`.
///
/// # Errors
/// If it is not a JSON object.
pub(super) fn check_config(text: &str) -> Result<(), String> {
    match serde_json::from_str::<serde_json::Value>(text) {
        _ if text.is_empty() => Ok(()),
        Ok(serde_json::Value::Object(_)) => Ok(()),
        Ok(_) => Err(format!("--config is not a JSON object, such as {{\"turns\": 3}}: {text}")),
        Err(error) => {
            Err(format!("--config is not JSON: {error}; in a shell, put it in single quotes: '{{\"turns\": 3}}'"))
        }
    }
}

/// Checks a component in a separate limited process, exactly like an upload.
fn test(flags: &Test) -> Result<(), String> {
    check_config(&flags.config)?;
    let component = Component::at(&flags.path)?;
    let path = component.path.canonicalize().map_err(|error| format!("{}: {error}", component.path.display()))?;
    let found = match progress::during("checking", || plugin_check::check(&path, component.world, &flags.config)) {
        Ok(found) => found,
        Err(CheckError::Refused(rejected)) => return Err(refused(&rejected, flags.json)),
        Err(CheckError::Unavailable(why)) => return Err(why),
    };
    if flags.storage.is_some() && found.world != World::LogAdaptor.name() {
        return Err(format!("--storage is for a log-adaptor, and {} is a {}: leave it out", found.name, found.world));
    }
    let replayed = match &flags.storage {
        Some(endpoint) => Some(storage::try_on(&path, &flags.config, endpoint)?),
        None => None,
    };
    if flags.json {
        let replayed = replayed.map(|steps| steps.len());
        out!("{}", serde_json::json!({ "found": found, "storage_steps": replayed }));
        return Ok(());
    }
    print(&found);
    for step in replayed.into_iter().flatten() {
        out!("  passed  on the storage: {step}");
    }
    if found.world == World::LogAdaptor.name() && flags.storage.is_none() {
        out!("  note: give --storage to see that a replay changes nothing in the storage");
    }
    Ok(())
}

/// Prints the input that a plugin failed on, and returns the reason.
fn refused(rejected: &Rejected, json: bool) -> String {
    let Rejected { reason, input } = rejected;
    match input {
        _ if json => out!("{}", serde_json::json!({ "refused": reason, "input": input })),
        Some(input) => out!("  input: {input}"),
        None => {}
    }
    format!("the plugin fails the conformance kit: {reason}")
}

fn print(found: &Found) {
    let Found { world, name, version, about, checked } = found;
    out!("{name} {version} ({world}): {about}");
    for (check, cases) in &checked.checks {
        out!("  passed  {check} ({cases})");
    }
    let of_start = World::by_name(world).map_or(0, |world| PluginLimits::default().fuel_of_start(world));
    let per_call = of_start + checked.budget_per_item;
    let percent = |used: u64, budget: u64| used.saturating_mul(100) / budget.max(1);
    out!(
        "  fuel    {} a call ({} % of the budget), {} an item ({} %)",
        checked.fuel_per_call,
        percent(checked.fuel_per_call, per_call),
        checked.fuel_per_item,
        percent(checked.fuel_per_item, checked.budget_per_item)
    );
    out!("  behaves {}", &checked.behaviour[..checked.behaviour.len().min(16)]);
    if !checked.levels.is_empty() {
        out!("  levels  {}", checked.levels.join(", "));
    }
    for (level, why) in &checked.misses {
        out!("  not     {level}: accepts {why}");
    }
}

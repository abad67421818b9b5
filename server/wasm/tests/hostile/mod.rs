//! A conflict rule in WebAssembly text whose parts can be replaced by hostile ones.

use tribunal_wasm::{World, encode};

/// Parts of a module. By default it ranks by CSN, in both halves.
pub struct Hostile {
    /// Body of `rank`; returns the address of the result. Memory from 512 on is free for it.
    pub rank: &'static str,
    /// Body of `init`; returns the address of the result. Memory from 128 on is free for it.
    pub init: &'static str,
    /// Body of the start function; none if empty.
    pub start: &'static str,
    /// Body of `cabi_realloc`; a bump allocator if empty.
    pub realloc: &'static str,
    /// Whether `cabi_realloc` behaves for requests of no bytes, as the empty configuration is.
    pub config_free: bool,
    /// Initial pages of memory.
    pub pages: u32,
    /// Address of the first allocation of `cabi_realloc`.
    pub top: u32,
}

impl Default for Hostile {
    fn default() -> Self {
        Hostile {
            rank: "(i32.store (i32.const 516) (local.get $csn)) (i32.store (i32.const 520) (local.get $csns))
                   (i32.store (i32.const 524) (local.get $csn)) (i32.store (i32.const 528) (local.get $csns))
                   (i32.const 512)",
            init: "(i32.const 128)",
            start: "",
            realloc: "",
            config_free: false,
            pages: 2,
            top: 4096,
        }
    }
}

const BUMP: &str = "(local.set $at (i32.and (i32.add (global.get $top) (i32.const 7)) (i32.const -8)))
                    (global.set $top (i32.add (local.get $at) (local.get $size)))
                    (local.get $at)";

impl Hostile {
    /// Assembles the core module.
    pub fn module(&self) -> Vec<u8> {
        wat::parse_str(self.text()).expect("the template parses")
    }

    /// Encodes the module as a component of the world `conflict-rule`.
    pub fn component(&self) -> Vec<u8> {
        encode::encode(&self.module(), World::ConflictRule).expect("becomes a component")
    }

    fn text(&self) -> String {
        let Hostile { rank, init, start, realloc, config_free, pages, top } = self;
        let start = if start.is_empty() { String::new() } else { format!("(func $start {start}) (start $start)") };
        let realloc = match (realloc.is_empty(), config_free) {
            (true, _) => BUMP.to_owned(),
            (false, false) => (*realloc).to_owned(),
            (false, true) => {
                format!("(if (i32.eqz (local.get $size)) (then (return (i32.const 8)))) {realloc}")
            }
        };
        format!(
            r#"(module
                (memory (export "memory") {pages})
                (global $top (mut i32) (i32.const {top}))
                (data (i32.const 16) "\40\00\00\00\04\00\00\00\40\00\00\00\04\00\00\00\40\00\00\00\04\00\00\00")
                (data (i32.const 64) "evil")
                (func $recurse (param i32)
                    (call $recurse (i32.add (local.get 0) (i32.const 1)))
                    (i32.store (i32.const 700) (local.get 0)))
                {start}
                (func (export "cabi_realloc") (param i32 i32 i32) (param $size i32) (result i32)
                    (local $at i32) {realloc})
                (func (export "tribunal:plugin/lifecycle@1.0.0#describe") (result i32) (i32.const 16))
                (func (export "tribunal:plugin/lifecycle@1.0.0#init") (param i32 i32) (result i32) {init})
                (func (export "tribunal:plugin/rule@1.0.0#needs") (result i32) (i32.const 1))
                (func (export "tribunal:plugin/rule@1.0.0#rank")
                    (param $count i32) (param $epoch i64) (param $csn i32) (param $csns i32)
                    (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) {rank}))"#
        )
    }
}

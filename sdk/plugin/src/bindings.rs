//! Bindings generated from `plugins/wit`. They are only used by this crate's macros and traits, not by plugins.
//!
//! There is one module per interface rather than per world, since two worlds in one crate would both define `lifecycle`. The
//! `export_*!` macros combine the interfaces that a component exports: those of one world, and optional ones.
#![allow(clippy::all, missing_docs, unsafe_op_in_unsafe_fn, reason = "generated code; the WIT files document it")]

pub mod lifecycle {
    wit_bindgen::generate!({
        path: "../../plugins/wit",
        inline: "package tribunal:sdk; world lifecycle-only { export tribunal:plugin/lifecycle@1.0.0; }",
        world: "tribunal:sdk/lifecycle-only",
        pub_export_macro: true,
        export_macro_name: "export_lifecycle",
        default_bindings_module: "tribunal_plugin_sdk::bindings::lifecycle",
    });
}

pub mod rule {
    wit_bindgen::generate!({
        path: "../../plugins/wit",
        inline: "package tribunal:sdk; world rule-only { export tribunal:plugin/rule@1.0.0; }",
        world: "tribunal:sdk/rule-only",
        pub_export_macro: true,
        export_macro_name: "export_rule_interface",
        default_bindings_module: "tribunal_plugin_sdk::bindings::rule",
    });
}

pub mod validator {
    wit_bindgen::generate!({
        path: "../../plugins/wit",
        inline: "package tribunal:sdk; world validator-only { export tribunal:plugin/validator@1.0.0; }",
        world: "tribunal:sdk/validator-only",
        pub_export_macro: true,
        export_macro_name: "export_validator_interface",
        default_bindings_module: "tribunal_plugin_sdk::bindings::validator",
    });
}

pub mod adaptor {
    wit_bindgen::generate!({
        path: "../../plugins/wit",
        inline: "package tribunal:sdk; world adaptor-only { export tribunal:plugin/adaptor@1.0.0; }",
        world: "tribunal:sdk/adaptor-only",
        pub_export_macro: true,
        export_macro_name: "export_adaptor_interface",
        default_bindings_module: "tribunal_plugin_sdk::bindings::adaptor",
    });
}

pub mod record_ids {
    wit_bindgen::generate!({
        path: "../../plugins/wit",
        inline: "package tribunal:sdk; world record-ids-only { export tribunal:plugin-record-ids/record-ids@1.0.0; }",
        world: "tribunal:sdk/record-ids-only",
        pub_export_macro: true,
        export_macro_name: "export_record_ids_interface",
        default_bindings_module: "tribunal_plugin_sdk::bindings::record_ids",
    });
}

pub mod traces {
    wit_bindgen::generate!({
        path: "../../plugins/wit",
        inline: "package tribunal:sdk; world traces-only { export tribunal:plugin-traces/traces@1.0.0; }",
        world: "tribunal:sdk/traces-only",
        pub_export_macro: true,
        export_macro_name: "export_traces_interface",
        default_bindings_module: "tribunal_plugin_sdk::bindings::traces",
    });
}

//! Runs the target `token` for as long as libFuzzer likes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (tribunal_fuzz::target("token").run)(data);
});

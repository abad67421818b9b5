//! Runs the target `frame` for as long as libFuzzer likes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (tribunal_fuzz::target("frame").run)(data);
});

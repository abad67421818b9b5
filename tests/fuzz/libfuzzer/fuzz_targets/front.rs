//! Runs the target `front` for as long as libFuzzer likes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (tribunal_fuzz::target("front").run)(data);
});

//! Runs the target `traceparent` for as long as libFuzzer likes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (tribunal_fuzz::target("traceparent").run)(data);
});

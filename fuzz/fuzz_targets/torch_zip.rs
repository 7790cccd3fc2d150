//! torch's zip container, TorchScript and .pt2: directory, pickles, records.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| twinscope_fuzz::open_and_read("fuzz.pt", data));

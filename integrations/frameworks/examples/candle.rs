//! `cargo run --example candle RUN [FAULT]`: the transformer in candle, recorded; with `gelu`, `epsilon`, `scale` or `query-key`, a broken one.

use twinscope_capture::{Recorder, candle::FRAMEWORK};
use twinscope_frameworks::candle_model;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let run = std::env::args_os()
        .nth(1)
        .ok_or("usage: candle RUN [FAULT]")?;
    let fault = std::env::args()
        .nth(2)
        .map(|name| name.parse())
        .transpose()?;
    let model = candle_model::model(fault)?;
    let recorder = Recorder::to(&run)
        .label("candle")
        .framework(FRAMEWORK.0, FRAMEWORK.1)
        .overwrite()
        .start()?;
    model.forward(&candle_model::tokens()?)?;
    let summary = recorder.finish()?;
    println!(
        "{} tensors, {} bytes in {}",
        summary.records,
        summary.bytes,
        summary.run.display()
    );
    Ok(())
}

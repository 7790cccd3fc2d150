//! `cargo run --example burn RUN`: the transformer in burn, recorded. With `--ops`, every operation of it.

use burn::tensor::Device;
use twinscope_capture::Recorder;
use twinscope_capture_burn::{FRAMEWORK, record_ops};
use twinscope_frameworks::burn_model;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let run = std::env::args_os()
        .nth(1)
        .ok_or("usage: burn RUN [--ops]")?;
    let ops = std::env::args().any(|arg| arg == "--ops");
    let device = Device::flex();
    let model = burn_model::model(&device);
    let recorder = Recorder::to(&run)
        .label("burn")
        .framework(FRAMEWORK.0, FRAMEWORK.1)
        .overwrite()
        .start()?;
    if ops {
        record_ops(&model, |model, device| {
            model.forward(burn_model::tokens(device))
        })?;
    } else {
        model.forward(burn_model::tokens(&device));
    }
    let summary = recorder.finish()?;
    println!(
        "{} tensors, {} bytes in {}",
        summary.records,
        summary.bytes,
        summary.run.display()
    );
    Ok(())
}
